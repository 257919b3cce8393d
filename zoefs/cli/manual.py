"""`help`: what the manual says of a word, looked up in the pages that are installed with the program.

A paragraph is a heading "### `word`" and the text below it; a row is a line of a table that begins with "| `word`". A
word that has neither is looked for in every line.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from zoefs.cli.fail import Failure
from zoefs.contract.words import Exit

PAGES = Path(__file__).parents[1] / "man"
ENTRANCE = "zoefs(7)"
HEAD = re.compile(r"^### `([^`(]+?)(?: \(([a-z]+)\))?`$", re.M)
ROW = re.compile(r"^\| `([^`]+)` +\|", re.M)
MADE = re.compile(r"^<!-- made: ([a-z-]+) -->\n(.*?)^<!-- end -->$", re.M | re.S)
_PLACE = re.compile(r"^(?:## (.+)|### `(.+)`)$")
LINES_SHOWN = 40


def reference(file: str) -> str:
    """How a page is called: `zoefs-tree.5.md` is zoefs-tree(5)."""
    name, section, _ = file.split(".")
    return f"{name}({section})"


def pages() -> dict[str, str]:
    """zoefs-tree(5) -> its text, of every page."""
    return {reference(path.name): path.read_text() for path in sorted(PAGES.glob("*.md"))}


def as_text(part: str) -> str:
    """A part of a page as a terminal shows it: without the marks that are for the manual's own tools."""
    part = re.sub(r"^<!-- .* -->\n|^\[zoefs.*\n", "", part, flags=re.M)
    return re.sub(r"\[(zoefs(?:-[a-z]+)?\([0-9]\))\]", r"\1", part).strip("\n") + "\n"


def paragraphs(word: str, manual: Mapping[str, str]) -> Iterator[str]:
    """Every paragraph that has this word, and every row; case does not matter."""
    wanted = word.lower()
    for page, text in manual.items():
        for section in re.split(r"^## ", text, flags=re.M)[1:]:
            title, _, rest = section.partition("\n")
            pieces = HEAD.split(rest)
            for found, meant, part in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
                if found.lower() == wanted:
                    yield f"{page}, {title}: {found}{f' ({meant})' if meant else ''}\n{as_text(part)}"
            for line in MADE.sub("", rest).splitlines():
                if (row := ROW.match(line)) and row[1].lower() == wanted:
                    yield f"{page}, {title}:\n{as_text(line)}"


def lines(word: str, manual: Mapping[str, str]) -> Iterator[str]:
    """Every line that holds this word, with its page and the heading that it stands below."""
    for page, text in manual.items():
        place = ""
        for line in text.splitlines():
            if heading := _PLACE.match(line):
                place = heading[1] or heading[2]
            if word.lower() in line.lower() and place != "Index" and not line.startswith(("<!--", "[zoefs")):
                yield f"{page}, {place}: {as_text(line).strip()}\n"


def named(word: str, manual: Mapping[str, str]) -> str:
    """The page that a word is the name of, with or without its number; the first, where several are; else empty."""
    return next((page for page in manual if word in (page, page.partition("(")[0])), "")


@click.command()
@click.argument("words", nargs=-1, metavar="[WORD]")
def help(words: tuple[str, ...]) -> None:
    """Show what the manual says of WORD: a file, status, verb, key, event, error, option; or a page of it."""
    manual, word = pages(), " ".join(words) or ENTRANCE
    if page := named(word, manual):
        show = click.echo_via_pager if sys.stdout.isatty() else functools.partial(click.echo, nl=False)
        show(as_text(manual[page]))
        return
    found = list(paragraphs(word, manual))
    if found:
        click.echo("\n".join(found), nl=False)
        return
    told = list(lines(word, manual))
    if not told:
        raise Failure(Exit.NOT_FOUND, f"the manual says nothing of {word[:80]!r}; zoefs help shows where it begins")
    click.echo("".join(told[:LINES_SHOWN]), nl=False)
    if len(told) > LINES_SHOWN:
        click.echo(f"and {len(told) - LINES_SHOWN} lines more")

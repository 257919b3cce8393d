"""`help`: what the manual says of a word, looked up in the pages that are installed with the program.

A paragraph is a heading "### `word`" and the text below it; a row is a line of a table that begins with "| `word`". Of
a word that has neither, the paragraphs are shown that have it in their name; else the places where it stands.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
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
SHOWN = 12
"""How many other places of a word are shown, or named."""


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


def paragraphs(word: str, manual: Mapping[str, str], whole: bool = True) -> Iterator[str]:
    """Every paragraph that goes by this word, or, without `whole`, that has it in its name; case does not matter."""
    wanted = word.lower()
    for page, text in manual.items():
        for title, rest in _sections(text):
            pieces = HEAD.split(rest)
            for found, meant, part in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
                name = found.lower()
                if name == wanted or (not whole and f" {wanted} " in f" {name.replace('-', ' ')} "):
                    yield f"{page}, {title}: {found}{f' ({meant})' if meant else ''}\n{as_text(part)}"


def rows(word: str, manual: Mapping[str, str]) -> Iterator[str]:
    """Every row of a table that begins with this word."""
    for place, piece in _everywhere(manual):
        if (row := ROW.match(piece)) and row[1].lower() == word.lower():
            yield f"{place}:\n{as_text(piece)}"


def passages(word: str, manual: Mapping[str, str]) -> dict[str, list[str]]:
    """Every piece of text, and row, that holds this word, by the page and the heading that it stands below."""
    found: dict[str, list[str]] = {}
    for place, piece in _everywhere(manual):
        row = ROW.match(piece)
        if word.lower() in " ".join(piece.lower().split()) and not (row and row[1].lower() == word.lower()):
            found.setdefault(place, []).append(as_text(piece))
    return found


def _everywhere(manual: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for page, text in manual.items():
        for title, section in _sections(text):
            if title != "Index":
                yield from ((f"{page}, {place}", piece) for place, piece in _pieces(title, MADE.sub("", section)))


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, rest = section.partition("\n")
        yield title, rest


def _pieces(title: str, section: str) -> Iterator[tuple[str, str]]:
    """The rows, and the pieces between empty lines, each with the heading that it stands below."""
    place = title
    for piece in section.split("\n\n"):
        head, _, rest = piece.lstrip("\n").partition("\n")
        if heading := HEAD.match(head):
            place, piece = heading[1], rest
        parts = piece.splitlines() if piece.lstrip().startswith("|") else [piece]
        yield from ((place, part) for part in parts if part.strip())


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
    told, found = list(paragraphs(word, manual)), list(rows(word, manual))
    if not told and not found:
        told = list(paragraphs(word, manual, whole=False))
    places = passages(word, manual)
    if not told and not found and not places:
        raise Failure(Exit.NOT_FOUND, f"the manual says nothing of {word[:80]!r}; zoefs help shows where it begins")
    click.echo("\n".join([*told, *found, *(_also(word, places) if told else _first(places))]), nl=False)


def _first(places: Mapping[str, list[str]]) -> list[str]:
    """The first places, and how many there are more."""
    shown = [f"{place}:\n{text}" for place, texts in places.items() for text in texts]
    return [*shown[:SHOWN], f"and {len(shown) - SHOWN} places more\n"] if len(shown) > SHOWN else shown


def _also(word: str, places: Mapping[str, list[str]]) -> list[str]:
    """A line that names where else it stands as a word of its own."""
    alone = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])", re.I)
    there = [place for place, texts in places.items() if any(alone.search(text) for text in texts)]
    more = [f"and {len(there) - SHOWN} places more"] if len(there) > SHOWN else []
    line = f"Also in: {'; '.join([*there[:SHOWN], *more])}"
    return [textwrap.fill(line, 118, break_on_hyphens=False) + "\n"] if there else []

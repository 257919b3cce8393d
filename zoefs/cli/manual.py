"""`help`: what the manual says of a word, looked up in the pages that are installed with the program.

A paragraph is a heading "### `word`" and the text below it, or a section without such headings, which goes by its
title; a row is a line of a table that begins with "| `word`". The table "Also called" of the entrance names paragraphs
by other words. Of a word that has none of these, the paragraphs are shown that have it in their name; else the places
where it stands, as a whole word, outside of shell lines.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from zoefs.cli.fail import Failure
from zoefs.contract.words import Exit

PAGES = Path(__file__).parents[1] / "man"
ENTRANCE = "zoefs(7)"
HEAD = re.compile(r"^### `([^`(]+?)(?: \(([a-z]+)\))?`$", re.M)
ROW = re.compile(r"^\| `([^`]+)` +\|", re.M)
MADE = re.compile(r"^<!-- made: ([a-z-]+) -->\n(.*?)^<!-- end -->$", re.M | re.S)
ALSO_CALLED = "Also called"
FRAME = re.compile(r"^```.*?^```$", re.M | re.S)
UNNAMED = frozenset({"Description", "Synopsis", "See also", "Index", "Words", ALSO_CALLED, "Exit status"})
"""Sections that are no paragraphs: every page has them, or nobody looks them up by their title."""
ORDER = (
    "zoefs-tree(5) zoefs(1) zoefs-prompts(7) zoefs-ctl(7) zoefs-status(7) zoefs-spec(5) zoefs-recipes(7) "
    "zoefs-errors(7) zoefs-agents(7) zoefs-events(5) zoefs-home(5) zoefs(7) zoefs-supervisor(1) zoefs-sshfs(7) "
    "zoefs-guarantees(7) zoefs-files(5) zoefs-metrics(5)"
).split()
"""Which page is searched first: what a file is before what is promised of it."""
SHOWN = 12
"""How many other places of a word are shown, or named."""


def reference(file: str) -> str:
    """How a page is called: `zoefs-tree.5.md` is zoefs-tree(5)."""
    name, section, _ = file.split(".")
    return f"{name}({section})"


def pages() -> dict[str, str]:
    """zoefs-tree(5) -> its text, of every page, in ORDER."""
    found = {reference(path.name): path.read_text() for path in sorted(PAGES.glob("*.md"))}
    return {page: found[page] for page in sorted(found, key=ORDER.index)}


def as_text(part: str) -> str:
    """A part of a page as a terminal shows it: without the marks that are for the manual's own tools."""
    part = re.sub(r"^<!-- .* -->\n|^\[zoefs[^]\n]*\]: .*\n", "", part, flags=re.M)
    return re.sub(r"\[(zoefs(?:-[a-z]+)?\([0-9]\))\]", r"\1", part).strip("\n") + "\n"


def paragraphs(word: str, manual: Mapping[str, str], whole: bool = True) -> Iterator[str]:
    """Every paragraph that goes by this word, or, without `whole`, that has it in its name; case does not matter."""
    wanted = word.lower()
    for page, text in manual.items():
        for title, rest in _sections(text):
            pieces = HEAD.split(rest)
            if len(pieces) == 1 and _is_called(title, wanted, whole) and title not in UNNAMED:
                yield f"{page}, {title}\n{as_text(rest)}"
            for found, meant, part in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
                if _is_called(found, wanted, whole):
                    yield f"{page}, {title}: {found}{f' ({meant})' if meant else ''}\n{as_text(part)}"


def _is_called(name: str, wanted: str, whole: bool) -> bool:
    name = name.lower().replace("`", "")
    return name == wanted or (not whole and f" {wanted} " in f" {re.sub('[-_]', ' ', name)} ")


def also_called(manual: Mapping[str, str]) -> dict[str, list[str]]:
    """A word that has no paragraph of its own, or more than that -> the paragraphs that answer who looks it up."""
    (table,) = [rest for title, rest in _sections(manual[ENTRANCE]) if title == ALSO_CALLED]
    rows = (re.findall(r"`([^`]+)`", line) for line in table.splitlines() if line.startswith("| `"))
    return {word: names for word, *names in rows}


def rows(word: str, manual: Mapping[str, str]) -> Iterator[str]:
    """Every row of a table that begins with this word."""
    for place, piece in _everywhere(manual):
        if (row := ROW.match(piece)) and row[1].lower() == word.lower():
            yield f"{place}:\n{as_text(piece)}"


def passages(word: str, manual: Mapping[str, str]) -> dict[str, list[str]]:
    """Every piece of text, and row, that holds this word, by the page and the heading that it stands below."""
    found: dict[str, list[str]] = {}
    alone = _alone(word)
    for place, piece in _everywhere(manual):
        row = ROW.match(piece)
        if alone.search(" ".join(piece.split())) and not (row and row[1].lower() == word.lower()):
            found.setdefault(place, []).append(as_text(piece))
    return found


def _alone(word: str) -> re.Pattern[str]:
    """This word by itself, or in the plural; with the dashes of an option, but no part of another word."""
    return re.compile(rf"(?<!\w)(?<!\w-){re.escape(' '.join(word.split()))}s?(?!\w)(?!-\w)", re.I)


def _everywhere(manual: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for page, text in manual.items():
        for title, section in _sections(text):
            if title not in ("Index", ALSO_CALLED):
                prose = FRAME.sub("", MADE.sub("", section))
                pieces = _pieces(title, prose)
                yield from ((f"{page}, {place}", piece) for place, piece in pieces if "**Tested.**" not in piece)


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


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, metavar="[WORD]")
def help(words: tuple[str, ...]) -> None:
    """Show what the manual says of WORD: a file, status, verb, key, event, error, option; or a page of it."""
    manual, word = pages(), " ".join(words) or ENTRANCE
    if page := named(word, manual):
        show = click.echo_via_pager if sys.stdout.isatty() else functools.partial(click.echo, nl=False)
        show(as_text(manual[page]))
        return
    told = said(word, manual)
    if not told and len(words) > 1 and (parts := list(_with_every(words, manual)) or said(words[0], manual)):
        told = [f"Nothing is said of {word!r} as it stands. Nearest:\n", *parts]
    if not told:
        raise Failure(Exit.NOT_FOUND, f"the manual says nothing of {word[:80]!r}; zoefs help shows where it begins")
    click.echo("\n".join(told), nl=False)


def said(word: str, manual: Mapping[str, str]) -> list[str]:
    """What is printed of a word; nothing where the manual does not have it. What is shown is not named again."""
    told, found = list(paragraphs(word, manual)), list(rows(word, manual))
    told += [part for name in also_called(manual).get(word.lower(), []) for part in paragraphs(name, manual)]
    if not told and not found:
        told = list(paragraphs(word, manual, whole=False))
    told = list(dict.fromkeys(told))
    heads = [part.partition("\n")[0] for part in told]
    shown = {re.sub(r", .*: |, ", ", ", re.sub(r" \([a-z]+\)$", "", head)) for head in heads}
    places = {place: texts for place, texts in passages(word, manual).items() if place not in shown}
    return [*told, *found, *(_also(places) if told else _first(word, places))]


def _with_every(words: Sequence[str], manual: Mapping[str, str]) -> Iterator[str]:
    """The paragraphs of the first word that hold all the others."""
    for part in paragraphs(words[0], manual):
        if all(_alone(word).search(part) for word in words[1:]):
            yield part


def _first(word: str, places: Mapping[str, list[str]]) -> list[str]:
    """The first places, and how many there are more. One where a sentence begins with the word is always shown."""
    begins = re.compile(rf"(?:\A|[.?!:]\s)\W*{re.escape(word)}(?!\w)", re.I)
    every = [(f"{place}:\n{text}", bool(begins.search(text))) for place, texts in places.items() for text in texts]
    room = max(0, SHOWN - sum(first for _, first in every))
    others = [text for text, first in every if not first][:room]
    shown = [text for text, first in every if first or text in others]
    return [*shown, f"and {len(every) - len(shown)} places more\n"] if len(every) > len(shown) else shown


def _also(places: Mapping[str, list[str]]) -> list[str]:
    """A line that names where else it stands."""
    more = [f"and {len(places) - SHOWN} places more"] if len(places) > SHOWN else []
    line = f"Also in: {'; '.join([*list(places)[:SHOWN], *more])}"
    return [textwrap.fill(line, 118, break_on_hyphens=False) + "\n"] if places else []

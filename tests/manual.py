"""The manual as data, and the parts of it that are made from tables: `python -m tests.manual` writes those anew.

A paragraph is a heading "### `word`" under a heading "## Table", and the text below it. A word that stands in several
tables adds which is meant: "### `failed (fate)`". A row is a line of a table that begins with "| `word`". A made part
stands between `<!-- made: NAME -->` and `<!-- end -->`. Pages name each other as `[zoefs-tree(5)]`, which the last made
part of each makes a link.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from zoefs.cli.manual import ALSO_CALLED, HEAD, MADE, ROW, also_called, paragraphs, reference
from zoefs.contract import diagram
from zoefs.contract.backends import BACKENDS
from zoefs.contract.events import Kind
from zoefs.contract.fields import FIELDS
from zoefs.contract.guard import CAPS, RULES, What, Whose
from zoefs.contract.spec import KEYS
from zoefs.contract.verbs import VERBS
from zoefs.contract.words import SETTLED, Status
from zoefs.mount.tree import FILES, LIST, ROOT, FileRow

MAN = Path(__file__).parents[1] / "docs" / "man"
RENEW = "python -m tests.manual"
NAMED = re.compile(r"\bzoefs(?:-[a-z]+)?\([0-9]\)")
ENTRANCE = "zoefs.7.md"


def pages() -> dict[str, str]:
    """File name -> text, of every page."""
    return {path.name: path.read_text() for path in sorted(MAN.glob("*.md"))}


def file_of(called: str) -> str:
    """The page that `zoefs-tree(5)` calls."""
    return re.sub(r"\((.)\)", r".\1.md", called)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Heading of a table -> word -> paragraph, of one page."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, rest = part.partition("\n")
        pieces = HEAD.split(rest)[1:]
        words = pieces[::3]
        assert len(words) == len(set(words)), f"{title}: a word stands twice"
        found[title] = dict(zip(words, pieces[2::3], strict=True))
    return found


# -- the parts that are made ------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown whose columns are aligned, so that it reads in a terminal too."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *cells)]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "".join(f"{line}\n" for line in (f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])))


def _fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text}```\n"


def _files(rows: Iterable[FileRow]) -> str:
    return table(("file", "mode", "what it is"), ((f"`{row.name}`", f"{row.mode:04o}", row.doc) for row in rows))


def _statuses() -> str:
    rows = ((f"`{word}`", "yes" if word in SETTLED else "no") for word in Status)
    return table(("status, the first that holds", "settled: `wait` answers at once"), rows)


def _verbs() -> str:
    head = ("verb", *Status)
    return table(
        head, ((f"`{row.verb}`", *("yes" if word in row.when else "" for word in Status)) for row in VERBS.values())
    )


def _verbs_of_backends() -> str:
    rows = ((f"`{verb}`", *("yes" if verb in row.verbs else "" for row in BACKENDS.values())) for verb in VERBS)
    return table(("verb", *BACKENDS), rows)


def _backends() -> str:
    rows = (
        (
            f"`{row.name}`",
            "one process for many turns" if row.transport == "stream" else "one process a turn",
            row.on_lost,
            " ".join(f"`{key}`" for key in sorted(row.without)),
            " ".join(row.versions) or "any program",
        )
        for row in BACKENDS.values()
    )
    return table(("backend", "processes", "`on_lost`", "keys that mean nothing to it", "tested versions"), rows)


def _keys() -> str:
    return table(("key", "what it is"), ((f"`{row.name}`", row.doc) for row in KEYS.values()))


def _rules() -> str:
    words = {What.MKDIR: "`mkdir agents/NAME`", What.RMDIR: "`rmdir`"}
    rows = (
        (
            words.get(rule.what, f"`{rule.what}`"),
            "" if rule.whose is Whose.NOBODY else rule.whose,
            f"`{rule.leave} = true`" if rule.leave else "",
        )
        for rule in RULES
    )
    return table(("what", "of whom", "where its own spec says"), rows)


def _caps() -> str:
    return table(("key", "what it must be"), ((f"`{cap.key}`", cap.must) for cap in CAPS.values() if cap.key in KEYS))


def _fields(kind: Kind) -> str:
    rows = (
        (f"`{row.name}`", row.type + (" or null" if row.null else ""), "yes" if row.always else "", row.doc)
        for row in FIELDS[kind]
    )
    return table(("field", "type", "always", "what it is"), rows)


def index() -> str:
    """Every word that has a paragraph or a row of a table, or is another name of one, by its first letter, with its
    pages."""
    words: dict[str, dict[str, None]] = {}
    for page, text in pages().items():
        own = re.sub(rf"^## {ALSO_CALLED}\n.*?(?=^## )", "", MADE.sub("", text), flags=re.M | re.S)
        for word, meant in [*HEAD.findall(own), *((word, "") for word in ROW.findall(own) if " " not in word)]:
            words.setdefault(word, {})[f"[{reference(page)}]{f' ({meant})' if meant else ''}"] = None
    manual = {reference(page): text for page, text in pages().items()}
    for word, names in also_called(manual).items():
        told = (part for name in names for part in paragraphs(name, manual))
        words.setdefault(word, {}).update({f"[{part.partition(',')[0]}]": None for part in told})
    letters: dict[str, list[str]] = {}
    for word in sorted(words, key=lambda word: (word.lstrip("-_./").lower(), word)):
        first = word.lstrip("-_./")[0].upper()
        letters.setdefault("0" if first.isdecimal() else first, []).append(f"`{word}` {', '.join(words[word])}")
    filled = (
        textwrap.fill(" · ".join(found), 118, break_on_hyphens=False, break_long_words=False)
        for found in letters.values()
    )
    return "\n\n".join(filled) + "\n"


def links(text: str) -> str:
    """What makes the pages that a text names links."""
    called = dict.fromkeys(re.findall(rf"\[({NAMED.pattern})\]", text))
    return "".join(f"[{name}]: {file_of(name)}\n" for name in sorted(called))


def _kinds() -> str:
    """The kinds of events, each with the first sentence of its paragraph."""
    told = sections(pages()["zoefs-events.5.md"])["Event kinds"]
    rows = ((f"`{word}`", re.split(r"\.(?:\s|$)", MADE.sub("", text))[0]) for word, text in told.items())
    return table(("kind", "what it tells"), ((word, " ".join(first.split())) for word, first in rows))


PARTS: dict[str, Callable[[], str]] = {
    "root": lambda: _files(ROOT.values()),
    "files": lambda: _files((LIST, *FILES.values())),
    "edges": lambda: _fenced(diagram.edges()),
    "reasons": lambda: _fenced(diagram.reasons()),
    "lives": lambda: _fenced(diagram.statuses()),
    "kinds": _kinds,
    "mermaid": lambda: _fenced(diagram.mermaid(), "mermaid"),
    "statuses": _statuses,
    "verbs": _verbs,
    "verbs-of-backends": _verbs_of_backends,
    "backends": _backends,
    "keys": _keys,
    "rules": _rules,
    "caps": _caps,
    **{f"fields-{kind}": lambda kind=kind: _fields(kind) for kind in Kind},  # type: ignore[misc]
    "index": index,
}
"""Name of a made part -> its text."""


def renewed(text: str) -> str:
    """A page with every made part as it is to be now; `links` is about the page itself, and comes last."""
    parts = MADE.sub(lambda match: match[0] if match[1] == "links" else _made(match[1], PARTS[match[1]]()), text)
    return MADE.sub(lambda match: _made("links", links(parts)) if match[1] == "links" else match[0], parts)


def _made(name: str, text: str) -> str:
    return f"<!-- made: {name} -->\n{text}<!-- end -->"


def main() -> None:
    """Write every page anew whose made parts are not up to date."""
    for page, text in pages().items():
        if (new := renewed(text)) != text:
            (MAN / page).write_text(new)
            print(f"renewed {reference(page)}")


if __name__ == "__main__":
    main()

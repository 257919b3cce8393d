"""The manual is the contract: every word of the tables has its paragraph, and no paragraph names another word.

A paragraph is a heading "### `word`" under the heading of its table, and the text below it. A word that stands in
several tables of a page may add which is meant: "### `failed (fate)`".
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

import click
import pytest

from zoefs.cli.main import cli
from zoefs.contract.backends import BACKENDS
from zoefs.contract.events import Kind
from zoefs.contract.spec import KEYS
from zoefs.contract.verbs import VERBS
from zoefs.contract.words import Exit, Fate, Reason, Status, Verb
from zoefs.mount.metrics import FAMILIES
from zoefs.mount.tree import FILES, LIST, ROOT

MAN = Path(__file__).parents[2] / "docs" / "man"

TABLES: dict[tuple[str, str], set[str]] = {
    ("zoefs-tree.5.md", "Files of MOUNT"): {*ROOT, LIST.name},
    ("zoefs-tree.5.md", "Files of an agent"): set(FILES),
    ("zoefs-tree.5.md", "Metrics"): set(FAMILIES),
    ("zoefs-tree.5.md", "Statuses"): set(Status),
    ("zoefs-tree.5.md", "Reasons"): set(Reason),
    ("zoefs-tree.5.md", "Verbs"): set(VERBS),
    ("zoefs-tree.5.md", "Fates"): set(Fate),
    ("zoefs-tree.5.md", "Spec keys"): set(KEYS),
    ("zoefs-tree.5.md", "Backends"): set(BACKENDS),
    ("zoefs-tree.5.md", "Event kinds"): set(Kind),
    ("zoefs.1.md", "Commands"): set(cli.commands),
    ("zoefs.1.md", "Exit codes"): {str(code) for name, code in vars(Exit).items() if name.isupper()},
}


def sections(page: str) -> dict[str, dict[str, str]]:
    """Heading of a table -> word -> paragraph."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^## ", (MAN / page).read_text(), flags=re.M)[1:]:
        title, _, rest = part.partition("\n")
        words = re.split(r"^### `([^`(]+?)(?: \([a-z]+\))?`$", rest, flags=re.M)[1:]
        assert len(words[::2]) == len(set(words[::2])), f"{page}, {title}: a word stands twice"
        found[title] = dict(zip(words[::2], words[1::2], strict=True))
    return found


@pytest.mark.parametrize(("page", "title"), TABLES)
def test_every_word_has_its_paragraph_and_no_other_has(page: str, title: str) -> None:
    paragraphs = sections(page)[title]
    assert set(paragraphs) == TABLES[page, title]
    assert [word for word, text in paragraphs.items() if not text.strip()] == []


def test_every_verb_has_its_row() -> None:
    assert set(VERBS) == set(Verb)


def test_a_verb_that_no_backend_takes_says_so() -> None:
    taken = {verb for backend in BACKENDS.values() for verb in backend.verbs}
    for verb, paragraph in sections("zoefs-tree.5.md")["Verbs"].items():
        assert ("No backend of this version can" in paragraph) == (verb not in taken), verb


@pytest.mark.parametrize("name", cli.commands)
def test_every_option_stands_in_the_paragraph_of_its_command(name: str) -> None:
    page = sections("zoefs.1.md")
    paragraph = page["Commands"][name]
    shared = set(page["Options"])
    for option in cli.commands[name].params:
        if isinstance(option, click.Option):
            (long,) = option.opts
            assert f"`{long}" in paragraph or long in shared, f"{name} {long}"
    known = {opt for option in cli.commands[name].params for opt in option.opts}
    assert set(re.findall(r"`(--[a-z-]+)", paragraph)) <= known


def test_errors_are_names_of_errors() -> None:
    names = set(sections("zoefs-tree.5.md")["Errors"])
    assert names <= set(errno.errorcode.values()) | {"EOPNOTSUPP"}
    assert {"EHOSTDOWN", "EBUSY", "EINVAL", "EAGAIN", "EDQUOT", "EFBIG", "EACCES", "ESTALE"} <= names

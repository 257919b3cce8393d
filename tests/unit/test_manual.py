"""The manual is the contract: every word of the tables has its paragraph, on one page, and no paragraph another word.

How a page is read stands in `tests/manual.py`; what no table says is compared in `test_manual_facts.py`.
"""

from __future__ import annotations

import collections
import re

import click
import pytest

from tests.manual import MAN, NAMED, PARTS, RENEW, file_of, pages, renewed, sections
from zoefs.cli.main import cli
from zoefs.cli.manual import HEAD, MADE, reference
from zoefs.contract.backends import BACKENDS
from zoefs.contract.events import Kind
from zoefs.contract.spec import KEYS
from zoefs.contract.verbs import VERBS
from zoefs.contract.words import Exit, Fate, Reason, Status, Verb
from zoefs.mount.metrics import FAMILIES
from zoefs.mount.tree import FILES, LIST, ROOT

ROOT_DIR = MAN.parents[1]
PAGES = pages()
TABLES: dict[tuple[str, str], set[str]] = {
    ("zoefs-tree.5.md", "Files of MOUNT"): {*ROOT, LIST.name},
    ("zoefs-tree.5.md", "Files of an agent"): set(FILES),
    ("zoefs-metrics.5.md", "Metrics"): set(FAMILIES),
    ("zoefs-status.7.md", "Statuses"): set(Status),
    ("zoefs-status.7.md", "Reasons"): set(Reason),
    ("zoefs-ctl.7.md", "Verbs"): set(VERBS),
    ("zoefs-prompts.7.md", "Fates"): set(Fate),
    ("zoefs-spec.5.md", "Spec keys"): set(KEYS),
    ("zoefs-spec.5.md", "Backends"): set(BACKENDS),
    ("zoefs-events.5.md", "Event kinds"): set(Kind),
    ("zoefs.1.md", "Commands"): set(cli.commands),
    ("zoefs-errors.7.md", "Exit codes"): {str(code) for name, code in vars(Exit).items() if name.isupper()},
}
OTHERS = {
    ("zoefs.1.md", "Options"),
    ("zoefs.1.md", "Environment"),
    ("zoefs-errors.7.md", "Errors"),
    ("zoefs-guarantees.7.md", "Guarantees"),
    ("zoefs-recipes.7.md", "Recipes"),
    ("zoefs-supervisor.1.md", "Commands"),
    ("zoefs-supervisor.1.md", "Signals"),
    ("zoefs-supervisor.1.md", "Files"),
}
"""Where else paragraphs stand: no table of the code has all their words."""


# -- every word has its paragraph -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "title"), TABLES)
def test_every_word_has_its_paragraph_and_no_other_has(page: str, title: str) -> None:
    paragraphs = sections(PAGES[page])[title]
    assert set(paragraphs) == TABLES[page, title]
    assert [word for word, text in paragraphs.items() if not MADE.sub("", text).strip()] == []


def test_every_word_stands_on_one_page() -> None:
    found = {(page, title) for page, text in PAGES.items() for title, words in sections(text).items() if words}
    assert found == set(TABLES) | OTHERS
    paragraphs = sum(len(sections(text)[title]) for page, text in PAGES.items() for title in sections(text))
    assert paragraphs == sum(len(HEAD.findall(text)) for text in PAGES.values())


def test_a_word_of_two_tables_says_which_is_meant() -> None:
    heads = [head for text in PAGES.values() for head in re.findall(r"^### `(.+)`$", text, re.M)]
    twice = {head for head, count in collections.Counter(heads).items() if count > 1}
    assert twice <= set(cli.commands) | set(FILES), "add in parentheses which is meant"


def test_every_verb_has_its_row() -> None:
    assert set(VERBS) == set(Verb)


def test_a_verb_that_no_backend_takes_says_so() -> None:
    taken = {verb for backend in BACKENDS.values() for verb in backend.verbs}
    for verb, paragraph in sections(PAGES["zoefs-ctl.7.md"])["Verbs"].items():
        assert ("No backend of this version can" in paragraph) == (verb not in taken), verb


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cli.commands)
def test_every_option_stands_in_the_paragraph_of_its_command(name: str) -> None:
    page = sections(PAGES["zoefs.1.md"])
    paragraph = page["Commands"][name]
    shared = set(page["Options"])
    for option in cli.commands[name].params:
        if isinstance(option, click.Option):
            (long,) = option.opts
            assert f"`{long}" in paragraph or long in shared, f"{name} {long}"
    known = {opt for option in cli.commands[name].params for opt in option.opts}
    assert set(re.findall(r"`(--[a-z-]+)", paragraph)) <= known


# -- the pages among themselves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_made_parts_are_as_the_tables_say(page: str) -> None:
    assert PAGES[page] == renewed(PAGES[page]), f"{reference(page)} is not up to date; run: {RENEW}"


def test_every_made_part_is_on_a_page() -> None:
    used = [name for text in PAGES.values() for name, _ in MADE.findall(text)]
    assert set(used) == set(PARTS) | {"links"}
    assert max(collections.Counter(name for name in used if name != "links").values()) == 1


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_name_and_its_sections(page: str) -> None:
    text = PAGES[page]
    assert text.startswith(f"# {reference(page)}: ")
    titles = re.findall(r"^## (.+)$", text, re.M)
    assert "Description" in titles[:2]
    assert titles[-1] == ("Index" if page == "zoefs.7.md" else "See also")
    assert page == "zoefs.7.md" or "## See also\n[zoefs(7)], " in text, "every page leads back"
    assert MADE.findall(text)[-1][0] == "links"


@pytest.mark.parametrize("page", PAGES)
def test_every_page_that_is_named_is_there(page: str) -> None:
    text = PAGES[page]
    assert {file_of(name) for name in NAMED.findall(text)} <= set(PAGES)
    prose = re.sub(r"^( {4}|#|\[)[^\n]*$|^```.*?^```", "", text, flags=re.M | re.S)
    assert re.findall(r"(?<!\[)\bzoefs(?:-[a-z]+)?\([0-9]\)", prose) == [], "write it as [zoefs-tree(5)]"


def test_the_entrance_leads_to_every_page() -> None:
    (table,) = [part for part in PAGES["zoefs.7.md"].split("\n## ") if part.startswith("Where to read what")]
    assert set(NAMED.findall(table)) == {reference(page) for page in PAGES if page != "zoefs.7.md"}


@pytest.mark.parametrize("page", PAGES)
def test_prose_is_no_wider_than_the_house_is(page: str) -> None:
    prose = re.sub(r"^(\||    )[^\n]*$|^```.*?^```", "", MADE.sub("", PAGES[page]), flags=re.M | re.S)
    assert [line for line in prose.splitlines() if len(line) > 120] == []


def test_every_test_that_the_guarantees_name_is_there() -> None:
    named = set(re.findall(r"`(tests/[^`]+)`", PAGES["zoefs-guarantees.7.md"]))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT_DIR / name).is_file()] == []


def test_every_guarantee_says_what_it_means_and_how_it_is_tested() -> None:
    found = sections(PAGES["zoefs-guarantees.7.md"])["Guarantees"]
    assert len(found) == 9
    for word, paragraph in found.items():
        for part in ("**Means.**", "**Does not mean.**", "**Tested.**", "```sh"):
            assert part in paragraph, f"{word}: {part}"


def test_the_readme_leads_to_the_entrance() -> None:
    assert "(docs/man/zoefs.7.md)" in (ROOT_DIR / "README.md").read_text()

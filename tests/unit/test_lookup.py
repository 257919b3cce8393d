"""`zoefs help`: what it prints of a word is what the page says, and a word that is nowhere is told so."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner, Result

from tests.manual import MAN
from zoefs.cli.main import cli
from zoefs.cli.manual import HEAD, ORDER, PAGES, SHOWN, _first, also_called, pages, paragraphs
from zoefs.contract.words import Exit

WORDS = sorted({word for text in pages().values() for word, _ in HEAD.findall(text)})


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["help", *words])


def test_the_pages_are_installed_with_the_program() -> None:
    assert {path.name: path.read_text() for path in PAGES.iterdir()} == {
        path.name: path.read_text() for path in MAN.iterdir()
    }


def test_every_word_is_found_by_its_name() -> None:
    text = "\n".join(pages().values())
    assert len(WORDS) > 150
    for word in WORDS:
        done = run("--", word)
        assert done.exit_code == 0, word
        paragraph = re.search(rf"^### `{re.escape(word)}(?: \([a-z]+\))?`\n(.+)", text, re.M)
        assert paragraph is not None
        assert re.sub(r"[\[\]]", "", paragraph[1]) in re.sub(r"[\[\]]", "", done.output), word


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ehostdown", "zoefs-errors(7), Errors: EHOSTDOWN\n(Host is down) "),
        ("failed", "zoefs-prompts(7), Fates: failed (fate)\nFinal: "),
        ("arriving", "zoefs-tree(5), Lines of `stat`:\n| `arriving` "),
        ("fold.json", "zoefs-home(5), Files of an agent:\n| `fold.json` "),
        ("workspace-write", "zoefs-spec(5), permission:\n"),
        ("system prompt", "zoefs-spec(5), prompt:\nText appended to the CLI's system prompt"),
        ("zoefs-sshfs", "# zoefs-sshfs(7): "),
        ("zoefs-sshfs(7)", "# zoefs-sshfs(7): "),
    ],
)
def test_words_and_pages(word: str, said: str) -> None:
    done = run(*word.split())
    assert said in done.output
    assert done.exit_code == 0
    assert "<!--" not in done.output
    assert "[zoefs" not in done.output


def test_without_a_word_it_is_the_entrance() -> None:
    assert run().output.startswith("# zoefs(7): ")


@pytest.mark.parametrize("page", pages())
def test_the_print_of_a_page_has_all_words_of_the_page(page: str) -> None:
    text = re.sub(r"^<!-- .* -->$", "", pages()[page].rpartition("<!-- made: links -->")[0], flags=re.M)
    assert re.sub(r"[\[\]]", "", run(page).output).split() == re.sub(r"[\[\]]", "", text).split()


def test_every_page_has_its_place_in_the_order_of_search() -> None:
    assert list(pages()) == list(ORDER)
    assert ORDER.index("zoefs-tree(5)") < ORDER.index("zoefs-guarantees(7)") < ORDER.index("zoefs-files(5)")


def test_every_other_name_leads_to_paragraphs() -> None:
    named = also_called(pages())
    assert len(named) > 10
    for word, names in named.items():
        assert names, word
        for name in names:
            parts = list(paragraphs(name, pages()))
            assert parts, name
            assert all(part in run(word).output for part in parts), word


@pytest.mark.parametrize(
    ("word", "head"),
    [
        ("limits", "zoefs-prompts(7), Limits\n"),
        ("lines of stat", "zoefs-tree(5), Lines of `stat`\n"),
        ("what programs meet", "zoefs-tree(5), What programs meet\n"),
        ("poll", "zoefs-tree(5), Waiting with poll\n"),
    ],
)
def test_a_section_is_found_by_its_title(word: str, head: str) -> None:
    assert run(*word.split()).output.startswith(head)


@pytest.mark.parametrize("word", ["star", "cksum"])
def test_only_whole_words_of_the_text_are_found(word: str) -> None:
    assert word in "\n".join(pages().values())
    assert run(word).exit_code == Exit.NOT_FOUND


def test_a_place_where_a_sentence_begins_with_the_word_is_never_cut() -> None:
    places = {f"page {n}": [f"it tells of poll {n}\n"] for n in range(2 * SHOWN)}
    places |= {f"late {n}": [f"It is so. `poll`(2) is {n}\n"] for n in range(SHOWN + 3)}
    shown = _first("poll", places)
    assert [part for part in shown if part.startswith("late")] == [
        f"late {n}:\n{places[f'late {n}'][0]}" for n in range(SHOWN + 3)
    ]
    assert shown[-1] == f"and {2 * SHOWN} places more\n"


@pytest.mark.parametrize(("words", "said"), [("kill -9", "Verbs: kill\n"), ("wait --timeout", "Commands: wait\n")])
def test_several_words_that_stand_nowhere_together(words: str, said: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 0
    assert done.output.startswith(f"Nothing is said of '{words}' as it stands. Nearest:\n")
    assert said in done.output


def test_a_word_in_many_places_is_cut_short() -> None:
    told = run("process").output.split("\n\n")
    assert len(told) == SHOWN + 1
    assert re.fullmatch(r"and \d+ places more\n", told[-1])


def test_a_paragraph_tells_where_else_its_word_stands() -> None:
    told = run("SIGTERM").output
    assert told.startswith("zoefs-supervisor(1), Signals: SIGTERM\n")
    assert "zoefs(1), mount" in told.partition("Also in: ")[2]
    assert "Also in: " not in run("two-trees").output


def test_rows_are_shown_behind_paragraphs() -> None:
    told = run("session").output
    at = [
        told.index(part)
        for part in ("Files of an agent: session", "Lines of `stat`:\n| `session`", "Words:\n| `session`")
    ]
    assert at == sorted(at)


def test_a_word_that_is_nowhere() -> None:
    done = run("xyzzy")
    assert done.exit_code == Exit.NOT_FOUND
    assert "says nothing of 'xyzzy'" in done.output

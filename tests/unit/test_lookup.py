"""`zoefs help`: what it prints of a word is what the page says, and a word that is nowhere is told so."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner, Result

from tests.manual import MAN
from zoefs.cli.main import cli
from zoefs.cli.manual import HEAD, PAGES, SHOWN, pages
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


def test_a_word_in_many_places_is_cut_short() -> None:
    told = run("bytes").output.split("\n\n")
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

"""The directives inside a prompt: what each means, and that a misspelt one is loud."""

from __future__ import annotations

import pytest

from tests.fakes.script import MOST_PIECES, BadDirective, Script, ToolCall, parse, pieces


def bash(command: str) -> ToolCall:
    return ToolCall("sh", {"line": command})


SCRIPTS = {
    "plain": Script(),
    "[[slow:2.5]]": Script(slow_s=2.5),
    "[[hang]]": Script(hang=True),
    "[[error:529]]": Script(error=529),
    "[[error1:401]]": Script(error_once=401),
    "[[errmodel:529:a:b]]": Script(error_model=(529, "a:b")),
    "[[usage:7,3]]": Script(usage=(7, 3)),
    '[[bash:ls]] [[tool:Write:{"rows": [[1]]}]]': Script(
        tools=(ToolCall("sh", {"line": "ls"}), ToolCall("Write", {"rows": [[1]]}))
    ),
}


@pytest.mark.parametrize(("prompt", "expected"), SCRIPTS.items())
def test_directives(prompt: str, expected: Script) -> None:
    assert parse(prompt, bash) == expected


@pytest.mark.parametrize(
    "prompt",
    [
        "[[bash:ls",
        "[[bash:ls]",
        "[[hang:1]]",
        "[[slow]]",
        "[[slow:-1]]",
        "[[slow:nan]]",
        "[[error:200]]",
        "[[error1:many]]",
        "[[errmodel:529]]",
        "[[usage:1]]",
        "[[tool:Write]]",
        "[[tool:Write:[1]]]",
        '[[tool:Write:{"a": 1]]',
    ],
)
def test_a_misspelt_directive_is_loud(prompt: str) -> None:
    with pytest.raises(BadDirective):
        parse(prompt, bash)


@pytest.mark.parametrize("text", ["", "a", "hello", "x" * 12345])
def test_a_text_streams_in_few_pieces(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert len(pieces(text)) <= MOST_PIECES

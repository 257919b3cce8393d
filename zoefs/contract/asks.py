"""What a CLI asks, and what may be answered.

Rules. An ask is bound to its id: an answer names it, the first one wins, and an id is never used again. A permission
is allowed, allowed always where the CLI offers a rule to keep, or denied. Questions are allowed with their answers.
"""

from __future__ import annotations

import errno
from typing import Any

import attrs

from zoefs.contract.events import Event
from zoefs.contract.refusal import Refusal

SEPARATOR = "|"
"""Between the answers to several questions of one ask; a comma stands between several choices of one question."""


@attrs.frozen
class Question:
    """One question. `key` is the CLI's own name of it; `several`: more than one of `choices` may be picked."""

    key: str
    text: str
    choices: tuple[str, ...] = ()
    several: bool = False

    def encode(self) -> dict[str, Any]:
        """As a value of an event."""
        return {"key": self.key, "text": self.text, "choices": list(self.choices), "several": self.several}


@attrs.frozen
class Ask:
    """One ask. `input` is the tool's own JSON value; `detail` is what its backend needs to answer it.

    `rule`: what the CLI will keep where it is allowed always; None where it offers nothing. `t`: since when, UTC as in
    events.
    """

    id: str
    tool: str
    input: Any
    t: str = ""
    questions: tuple[Question, ...] = ()
    rule: Any = None
    detail: Any = None


@attrs.frozen
class Verdict:
    """The answer to an ask. `answers`: for each question's key what was picked or written."""

    allow: bool
    always: bool = False
    why: str = ""
    answers: dict[str, tuple[str, ...]] = attrs.Factory(dict)

    @property
    def word(self) -> str:
        """How the journal names it."""
        return ("allow-always" if self.always else "allow") if self.allow else "deny"


def ask_of(event: Event) -> Ask:
    """The ask that an `asked` event tells of."""
    told = event.data.get("questions")
    questions = [one for value in told if (one := _question(value))] if isinstance(told, list) else []
    return Ask(
        id=event.text("ask"),
        tool=event.text("tool"),
        input=event.data.get("input"),
        t=event.t,
        questions=tuple(questions),
        rule=event.data.get("rule"),
        detail=event.data.get("detail"),
    )


def _question(value: Any) -> Question | None:
    if not isinstance(value, dict) or not isinstance(value.get("key"), str):
        return None
    choices = value.get("choices")
    choices = [choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else []
    return Question(value["key"], str(value.get("text", "")), tuple(choices), value.get("several") is True)


def read_answers(ask: Ask, text: str) -> dict[str, tuple[str, ...]]:
    """What `allow ASK TEXT` answers to each question: the number or the name of a choice, else the text itself.

    Raises Refusal(EINVAL) where there is not one answer a question, or an answer to an ask that has no question.
    """
    if not ask.questions:
        if text:
            raise Refusal(errno.EINVAL, f"ask {ask.id} has no question: `allow {ask.id}` takes nothing more")
        return {}
    parts = [part.strip() for part in text.split(SEPARATOR)] if len(ask.questions) > 1 else [text.strip()]
    if len(parts) != len(ask.questions) or not all(parts):
        asked = f" {SEPARATOR} ".join(question.text for question in ask.questions)
        raise Refusal(
            errno.EINVAL,
            f"ask {ask.id} has {len(ask.questions)} questions, not {len([p for p in parts if p])}: {asked}",
        )
    return {question.key: _picked(question, part) for question, part in zip(ask.questions, parts, strict=True)}


def _picked(question: Question, text: str) -> tuple[str, ...]:
    whole = _choice(question, text)
    if whole is not None:
        return (whole,)
    if question.several:
        picked = [_choice(question, part.strip()) for part in text.split(",")]
        if all(choice is not None for choice in picked):
            return tuple(dict.fromkeys(choice for choice in picked if choice is not None))
    return (text,)


def _choice(question: Question, text: str) -> str | None:
    if text.isdecimal() and text.isascii() and 1 <= int(text) <= len(question.choices):
        return question.choices[int(text) - 1]
    return next((choice for choice in question.choices if choice.casefold() == text.casefold()), None)

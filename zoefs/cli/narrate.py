"""Events told to a person: what `follow` prints for each. Pure: text in, text out.

Rules. What an agent says is printed as it comes and whole; of tools, one line each way. Whatever is no plain text
is made visible: what an agent prints must not steer the terminal of who watches it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

from zoefs.contract.asks import SEPARATOR, ask_of
from zoefs.contract.events import Event, Kind
from zoefs.contract.lifecycle import Life, spent_of
from zoefs.contract.words import Verb

BRIEF = 160
"""Characters of a tool's input, or of its result."""


def visible(text: str) -> str:
    """`text` without characters that do something to a terminal; newlines and tabs stay."""
    return "".join(c if c in "\n\t" or (c.isprintable() and c != "\x7f") else f"\\x{ord(c):02x}" for c in text)


def brief(text: str) -> str:
    """The first line of `text`, cut to BRIEF characters, with how much more there is."""
    lines = visible(text).strip().split("\n")
    head = lines[0] if len(lines[0]) <= BRIEF else f"{lines[0][:BRIEF]}…"
    return f"{head} (+{len(lines) - 1} lines)" if len(lines) > 1 else head


class Narrator:
    """Tells the events of one agent, one after the other. `ctl` is the path that answers are written to."""

    def __init__(self, ctl: str) -> None:
        self._ctl = shlex.quote(ctl)
        self._piece = ""
        self._open = False
        self.said = False
        """Whether the agent said anything in this turn."""

    def tell(self, event: Event) -> str:
        """What is printed for an event; empty for what is no news to a person."""
        if event.kind == Kind.DELTA:
            return self._more(event.text("text"))
        if event.kind == Kind.TEXT:
            return self._whole(event)
        teller = _TELLERS.get(event.kind)
        told = teller(self, event) if teller else ""
        return visible(self._closed() + told) if told else ""

    def _more(self, text: str) -> str:
        self._piece += text
        self._open = self.said = True
        return visible(text)

    def _whole(self, event: Event) -> str:
        """A finished piece: what of it was not printed yet, or all where something else was."""
        text, piece = event.text("text"), self._piece
        cut = event.number("cut")
        told = text[len(piece) :] if text.startswith(piece) else "" if cut and piece.startswith(text) else f"\n{text}"
        self._piece, self._open, self.said = "", False, True
        return visible(told) + ("" if text.endswith("\n") else "\n") + (f"[{cut} more characters]\n" if cut else "")

    def _closed(self) -> str:
        """The end of a line that a piece left open."""
        left, self._open, self._piece = self._open, False, ""
        return "\n" if left else ""

    def _prompt(self, event: Event) -> str:
        self.said = False
        return f"[{event.number('turn')}] prompt {event.text('id')}, {event.number('bytes')} bytes\n"

    def _tool(self, event: Event) -> str:
        return f"  > {brief(event.text('tool'))} {brief(_json(event.data.get('input')))}\n"

    def _tool_result(self, event: Event) -> str:
        word = "ok" if event.data.get("ok") is True else "failed"
        return f"  < {word} {brief(event.text('text'))}".rstrip() + "\n"

    def _asked(self, event: Event) -> str:
        ask = ask_of(event)
        lines = [f"? ask {ask.id}: {brief(ask.tool)} {brief(_json(ask.input))}"]
        for question in ask.questions:
            lines.append(f"  {brief(question.text)}{' (several)' if question.several else ''}")
            lines += [f"    {n}. {brief(choice)}" for n, choice in enumerate(question.choices, 1)]
        answers = f" {SEPARATOR} ".join("ANSWER" for _ in ask.questions)
        lines.append(self._line(f"{Verb.ALLOW} {ask.id} {answers}".rstrip()))
        if ask.rule is not None and not ask.questions:
            lines.append(f"  the rule it would keep: {brief(_json(ask.rule))}")
            lines.append(self._line(f"{Verb.ALLOW_ALWAYS} {ask.id}"))
        lines.append(self._line(f"{Verb.DENY} {ask.id} WHY"))
        return "".join(line + "\n" for line in lines)

    def _line(self, verb: str) -> str:
        return f"  echo {shlex.quote(visible(verb))} > {self._ctl}"

    def _answered(self, event: Event) -> str:
        why = event.text("why")
        by = event.text("by")
        told = f"! ask {event.text('ask')}: {event.text('decision')}{f' by {by}' if by else ''}"
        return f"{told}{f', {brief(why)}' if why else ''}\n"

    def _ask_gone(self, event: Event) -> str:
        return f"! ask {event.text('ask')} ended without an answer\n"

    def _turn_ended(self, event: Event) -> str:
        spent, reason = spent_of(event), event.text("text")
        told = f"[{event.number('turn')}] {event.text('how')}{f': {brief(reason)}' if reason else ''}"
        if spent.usd or spent.tokens_in or spent.tokens_out:
            usd = f"{'~' if spent.estimated else ''}{spent.usd:.4f} USD"
            told += f"; {usd}, {spent.tokens_in} tokens in, {spent.tokens_out} out"
        return told + "\n"

    def _turn_lost(self, event: Event) -> str:
        return f"[{event.number('turn')}] its CLI died under it\n"

    def _exited(self, event: Event) -> str:
        then = event.text("next")
        told = brief(event.text("text") or event.text("reason"))
        return "" if then == Life.RESTING else f"* the CLI ended: {then}{f', {told}' if told else ''}\n"

    def _note(self, event: Event) -> str:
        word = event.text("reason") or event.text("status")
        text = brief(event.text("text"))
        return f"* {event.kind}{f' {brief(word)}' if word else ''}{f': {text}' if text else ''}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if value not in (None, {}, []) else ""


_TELLERS: dict[str, Callable[[Narrator, Event], str]] = {
    Kind.PROMPT_GIVEN: Narrator._prompt,
    Kind.TOOL: Narrator._tool,
    Kind.TOOL_RESULT: Narrator._tool_result,
    Kind.ASKED: Narrator._asked,
    Kind.ANSWERED: Narrator._answered,
    Kind.ASK_GONE: Narrator._ask_gone,
    Kind.TURN_ENDED: Narrator._turn_ended,
    Kind.TURN_LOST: Narrator._turn_lost,
    Kind.EXITED: Narrator._exited,
    Kind.FAILED: Narrator._note,
    Kind.STOPPED: Narrator._note,
    Kind.RETIRED: Narrator._note,
    Kind.COMPACTED: Narrator._note,
    Kind.RETRY: Narrator._note,
    Kind.NOTE: Narrator._note,
}
"""Kinds that are news to a person, beside `text` and `delta`."""

"""The verbs of `ctl`: what a line may say, and in which status it is permitted.

A write is all or nothing: `parse_ctl` gives every line or refuses the write.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

import attrs

from zoefs.contract.asks import Ask, read_answers
from zoefs.contract.backends import Backend
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import ORDER_ID_RULE, Status, Verb, is_order_id

_ANY = frozenset(Status)
_LIVE = _ANY - {Status.FAILED, Status.STOPPED}


_FOLLOWS = {"none": "", "ask": " ASK", "ask-more": " ASK [TEXT]", "text": " TEXT"}


@attrs.frozen
class VerbRow:
    """One verb. `argument`: what follows it (`none`, `ask`, `ask-more`, `text`). `when`: statuses that permit it."""

    verb: Verb
    argument: str
    when: frozenset[Status]
    doc: str

    @property
    def usage(self) -> str:
        """The verb and what follows it, as a person would write it down."""
        return f"{self.verb}{_FOLLOWS[self.argument]}"


VERBS: dict[Verb, VerbRow] = {
    row.verb: row
    for row in (
        VerbRow(
            Verb.START,
            "none",
            frozenset({Status.STOPPED, Status.AWAIT, Status.BACKOFF}),
            "Let a stopped agent work again; an agent in backoff starts now; one never started starts its CLI.",
        ),
        VerbRow(
            Verb.STOP,
            "none",
            _ANY,
            "End the CLI: stdin EOF, grace, TERM, grace, KILL. Queued prompts stay queued, the last answer stays.",
        ),
        VerbRow(
            Verb.RESTART,
            "none",
            _ANY,
            "Stop, forget the failure and the crash count, and start again in the same session.",
        ),
        VerbRow(
            Verb.INTERRUPT,
            "none",
            _LIVE,
            "End the running turn; the process lives. With a prompt queued and none running, end that one. "
            "With neither, nothing happens.",
        ),
        VerbRow(
            Verb.KILL,
            "none",
            _ANY,
            "End the CLI and everything it started, now, by SIGKILL. The agent is stopped afterwards.",
        ),
        VerbRow(
            Verb.ALLOW,
            "ask-more",
            frozenset({Status.BLOCKED}),
            "Grant the ask with this id, once; to an ask with questions the rest is the answer: the number or the name "
            "of a choice, or other text.",
        ),
        VerbRow(
            Verb.ALLOW_ALWAYS,
            "ask",
            frozenset({Status.BLOCKED}),
            "Grant the ask and others like it, where the CLI offers a rule to keep.",
        ),
        VerbRow(Verb.DENY, "ask-more", frozenset({Status.BLOCKED}), "Refuse the ask with this id; the rest says why."),
        VerbRow(
            Verb.STEER,
            "text",
            _LIVE,
            "Say something into the running turn, where the backend can; else it is queued as a prompt, and says so.",
        ),
        VerbRow(Verb.COMPACT, "none", frozenset({Status.AWAIT}), "Have the CLI shorten its own history."),
        VerbRow(Verb.RESET_BUDGET, "none", _ANY, "Count the budget from here on."),
    )
}


@attrs.frozen
class Command:
    """One parsed line of `ctl`. `key` is the client's `#KEY`, empty where none was given."""

    verb: Verb
    argument: str = ""
    key: str = ""

    def encode(self) -> str:
        """The line as it is kept in an order, without its newline."""
        head = f"#{self.key} " if self.key else ""
        return f"{head}{self.verb}{' ' + self.argument if self.argument else ''}"


def parse_ctl(data: bytes) -> list[Command]:
    """The commands of one write to `ctl`.

    Raises Refusal(EINVAL) naming the line and what would be right. Empty lines are skipped.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refusal(errno.EINVAL, "ctl takes UTF-8 text, one verb a line") from None
    commands = [_parse_line(line.strip()) for line in text.split("\n") if line.strip()]
    keys = [command.key for command in commands if command.key]
    if len(set(keys)) < len(keys):
        raise Refusal(errno.EINVAL, "one key stands before two lines; a key is used once")
    return commands


def _parse_line(line: str) -> Command:
    key = ""
    rest = line
    if line.startswith("#"):
        key, rest = _first_word(line[1:])
        if not is_order_id(key):
            raise Refusal(errno.EINVAL, f"{line[:80]!r}: a key is {ORDER_ID_RULE}, then a space, then the verb")
    word, argument = _first_word(rest)
    try:
        row = VERBS[Verb(word)]
    except ValueError:
        raise Refusal(errno.EINVAL, f"no verb {word[:40]!r}; the verbs are {' '.join(VERBS)}") from None
    match row.argument:
        case "none" if argument:
            raise Refusal(errno.EINVAL, f"{word} takes nothing after it, not {argument[:40]!r}")
        case "ask" if len(argument.split()) != 1:
            raise Refusal(errno.EINVAL, f"{word} takes the id of one ask; read `ask` for the line to copy")
        case "ask-more" | "text" if not argument:
            raise Refusal(errno.EINVAL, f"{word} takes {'a text' if row.argument == 'text' else 'the id of one ask'}")
    return Command(row.verb, argument, key)


def _first_word(text: str) -> tuple[str, str]:
    """The first word and what follows it, without the space between."""
    end = next((n for n, character in enumerate(text) if character.isspace()), len(text))
    return text[:end], text[end:].strip()


def check_permitted(command: Command, status: Status, backend: Backend, asks: Mapping[str, Ask]) -> None:
    """Refuse a command that this status or backend does not permit.

    Raises Refusal: EOPNOTSUPP where the backend, or this ask, cannot; EBUSY where the status does not permit; ESTALE
    where the ask is not, or no longer, pending; EINVAL where the answer does not fit the ask.
    """
    row = VERBS[command.verb]
    if command.verb not in backend.verbs:
        can = " ".join(verb for verb in VERBS if verb in backend.verbs)
        raise Refusal(errno.EOPNOTSUPP, f"{command.verb}: {backend.agent} cannot; it can {can}")
    if status not in row.when:
        permitted = " ".join(verb for verb, other in VERBS.items() if status in other.when and verb in backend.verbs)
        raise Refusal(errno.EBUSY, f"{command.verb}: not while the agent is {status}; permitted now: {permitted}")
    if row.argument.startswith("ask"):
        id, rest = split_ask(command)
        ask = asks.get(id)
        if ask is None:
            raise Refusal(errno.ESTALE, f"{command.verb}: no ask {id[:80]!r} is pending; `ask` has those that are")
        if command.verb is Verb.ALLOW:
            read_answers(ask, rest)
        if command.verb is Verb.ALLOW_ALWAYS and ask.rule is None:
            raise Refusal(errno.EOPNOTSUPP, f"ask {id} offers no rule to keep; allow {id}, or deny {id}")


def split_ask(command: Command) -> tuple[str, str]:
    """The id of the ask that a command names, and what follows it."""
    return _first_word(command.argument)

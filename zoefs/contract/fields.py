"""What each kind of event carries: one row a field. The manual prints these rows, and the tests hold journals to them.

Rules. `v t seq kind` stand in every line and in no row. A field that is not `always` there may be missing. Times that
are no `t` are seconds since 1970; costs are USD; lengths are bytes. A reader ignores what he does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import attrs

from zoefs.contract.events import Kind


class Type(StrEnum):
    """What a value is in JSON."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    TRUTH = "true or false"
    LIST = "list"
    TABLE = "object"
    ANY = "any"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


FITS: dict[Type, Callable[[object], bool]] = {
    Type.TEXT: lambda value: isinstance(value, str),
    Type.WHOLE: lambda value: _is_number(value) and isinstance(value, int),
    Type.NUMBER: _is_number,
    Type.TRUTH: lambda value: isinstance(value, bool),
    Type.LIST: lambda value: isinstance(value, list),
    Type.TABLE: lambda value: isinstance(value, dict),
    Type.ANY: lambda value: True,
}
"""Whether a value is of a type."""


@attrs.frozen
class Field:
    """One field of an event. `always`: no event of its kind is without it; `null`: it may be null."""

    name: str
    type: Type
    doc: str
    always: bool = True
    null: bool = False

    @property
    def sometimes(self) -> Field:
        """The same field, where it need not be there."""
        return attrs.evolve(self, always=False)


_INC = Field("inc", Type.WHOLE, "the incarnation that it is about, from 1")
_RAW = Field("raw_end", Type.WHOLE, "bytes of `raw/INC.ndjson` up to the end of the line that told it")
_TURN = Field("turn", Type.WHOLE, "the turn, from 1")
_CHAT = Field("chat_end", Type.WHOLE, "bytes that `chat` has with it")
_ID = Field("id", Type.TEXT, "the prompt's id")
_ORDER = Field("order", Type.TEXT, "the file in `orders/` that it is about")
_ASK = Field("ask", Type.TEXT, "the ask's id")
_TOLD = (_INC, _RAW)
_SAID = (_INC, _RAW, _TURN)
_SPENT = (
    Field("cost_usd", Type.NUMBER, "USD that it cost", False),
    Field("tokens_in", Type.WHOLE, "tokens into the model", False),
    Field("tokens_out", Type.WHOLE, "tokens out of it", False),
    Field("total_usd", Type.NUMBER, "USD: the CLI's own running total", False),
    Field("cost_estimated", Type.TRUTH, "true: `cost_usd` comes from our table of prices", False),
    Field("tokens_unpriced", Type.WHOLE, "tokens whose price is not known: `cost_usd` lacks them", False),
)


def _why(doc: str, always: bool = True) -> Field:
    return Field("text", Type.TEXT, doc, always)


FIELDS: dict[Kind, tuple[Field, ...]] = {
    Kind.CREATED: (
        Field("name", Type.TEXT, "the agent"),
        Field("born", Type.TEXT, "a random word: no other agent of this name has it"),
    ),
    Kind.SESSION: (
        Field("id", Type.TEXT, "the session"),
        Field("how", Type.TEXT, "`chosen` by zoefs, or `reported` by the CLI"),
        Field("old", Type.TEXT, "the session before, where the CLI reported", False),
        _INC.sometimes,
        _RAW.sometimes,
    ),
    Kind.STARTED: (
        Field("forget", Type.TRUTH, "true: the deaths counted are forgotten", False),
        Field("renew", Type.TRUTH, "true: the session is given up, a new one begins", False),
    ),
    Kind.SPAWNED: (
        _INC,
        Field("pid", Type.WHOLE, "of the keeper"),
        Field("backend", Type.TEXT, "by which it was started"),
        Field("ready", Type.TRUTH, "true: there is no handshake, it is up at once"),
        Field("adopted", Type.TRUTH, "true: an earlier supervisor started it", False),
    ),
    Kind.READY: (
        *_TOLD,
        Field("version", Type.TEXT, "of the CLI"),
        Field("model", Type.TEXT, "that it will ask; empty where it does not say"),
    ),
    Kind.CAPABLE: (
        *_TOLD,
        Field("words", Type.LIST, "texts: what the CLI says it can"),
        Field("version", Type.TEXT, "of the CLI, where no handshake told it", False),
    ),
    Kind.EXITED: (
        _INC,
        Field("next", Type.TEXT, "where the agent stands now: resting, backoff, failed, stopped"),
        Field("rc", Type.WHOLE, "its shell exit code; null where its keeper could not tell", False, null=True),
        Field("signal", Type.WHOLE, "the signal that killed it", False),
        Field("reason", Type.TEXT, "the reason of `failed`; else empty", False),
        Field("until", Type.NUMBER, "seconds since 1970: when it is started again, in backoff", False),
        Field("died", Type.NUMBER, "seconds since 1970: when it died, where it is to be started again", False),
        Field("asked", Type.TEXT, "what ended it on purpose: a verb, or a word of the supervisor's", False),
        _why("a sentence for `error`", False),
    ),
    Kind.STOPPED: (Field("by", Type.TEXT, "the verb"),),
    Kind.FAILED: (Field("reason", Type.TEXT, "as in `stat`"), _why("a sentence for `error`")),
    Kind.RETIRED: (Field("name", Type.TEXT, "the agent"),),
    Kind.PROMPT_GIVEN: (
        _ID,
        _TURN,
        _ORDER,
        _INC.sometimes,
        Field("bytes", Type.WHOLE, "its length", False),
        Field("boot", Type.TEXT, "the boot id of the machine", False),
        _CHAT.sometimes,
        Field("note", Type.TEXT, "for its receipt", False),
        Field("withheld", Type.TRUTH, "true: it was interrupted before the CLI saw it", False),
    ),
    Kind.PROMPT_SENT: (_ID, _INC),
    Kind.PROMPT_ACCEPTED: (_ID, _INC, _TURN, _RAW.sometimes),
    Kind.PROMPT_CANCELLED: (_ID,),
    Kind.PROMPT_CUT: (_ID, _why("a sentence for `error`"), Field("note", Type.TEXT, "for its receipt")),
    Kind.TURN_ENDED: (
        _TURN,
        _ID,
        Field("how", Type.TEXT, "done, interrupted, failed or lost"),
        Field("bytes", Type.WHOLE, "the length of the answer"),
        _CHAT,
        _why("a sentence for `error`, where it was not done", False),
        Field("note", Type.TEXT, "for its receipt", False),
        _INC.sometimes,
        _RAW.sometimes,
        *_SPENT,
    ),
    Kind.TURN_LOST: (_TURN, _INC),
    Kind.STDIN_BEGUN: (
        _INC,
        Field("bytes", Type.WHOLE, "how many are to be written"),
        Field("id", Type.TEXT, "the prompt that they are, where they are one", False),
    ),
    Kind.STDIN_DONE: (_INC,),
    Kind.ASKED: (
        *_SAID,
        _ASK,
        Field("tool", Type.TEXT, "the tool that it wants to use"),
        Field("input", Type.ANY, "what the tool is to do, in the tool's own form"),
        Field("questions", Type.LIST, "objects of `key`, `text`, `choices` and `several`", False),
        Field("rule", Type.ANY, "what `allow-always` would have the CLI keep", False),
        Field("detail", Type.ANY, "what the backend needs to answer it", False),
    ),
    Kind.ANSWERED: (
        _ASK,
        Field("decision", Type.TEXT, "allow, allow-always or deny"),
        Field("why", Type.TEXT, "of a deny; else empty"),
        Field("by", Type.TEXT, "the key of the line of `ctl`, `client` where it had none, or `ask_timeout`"),
        Field("answers", Type.TABLE, "by question, the texts picked or written", False),
    ),
    Kind.ASK_GONE: (_INC, _TURN, _ASK, _RAW.sometimes),
    Kind.VERB_BEGUN: (
        Field("ctl", Type.TEXT, "the order whose line it is"),
        Field("verb", Type.TEXT, "the verb"),
        Field("turn", Type.WHOLE, "the turn that is open, or was last; 0 before the first"),
        _CHAT.sometimes,
    ),
    Kind.VERB_DONE: (
        Field("ok", Type.TRUTH, "whether it was carried out"),
        Field("ctl", Type.TEXT, "the order whose line it was", False),
        Field("verb", Type.TEXT, "the verb", False),
        Field("key", Type.TEXT, "the line's key, whose receipt this is", False),
        _why("for the receipt; where `ok` is false, for `error` too", False),
        Field("order", Type.TEXT, "the order, with its last line: it is done as a whole", False),
        Field("queued", Type.TEXT, "the order that a steer became: a prompt", False),
        Field("bytes", Type.WHOLE, "the length of that prompt", False),
        Field("steer", Type.TEXT, "the id of a steer that the CLI took into the turn", False),
    ),
    Kind.OUT_WRITTEN: (
        _ORDER,
        Field("by", Type.TEXT, "`agent` (itself, in its turn) or `client`"),
        Field("turn", Type.WHOLE, "the turn that is open, or was last; 0 before the first"),
        Field("file", Type.TEXT, "where the text is, below the agent's directory in HOME"),
    ),
    Kind.COMPACTED: (*_TOLD, Field("ok", Type.TRUTH, "whether it did"), _why("why not", False), *_SPENT),
    Kind.TEXT: (
        *_SAID,
        _why("at most 262,144 characters of the piece"),
        Field("cut", Type.WHOLE, "how many characters more it has", False),
    ),
    Kind.DELTA: (*_SAID, _why("what was said since the last one")),
    Kind.TOOL: (
        *_SAID,
        Field("tool_id", Type.TEXT, "the CLI's id of this use"),
        Field("tool", Type.TEXT, "the tool"),
        Field("input", Type.ANY, "what it is to do, in the tool's own form"),
    ),
    Kind.TOOL_RESULT: (
        *_SAID,
        Field("tool_id", Type.TEXT, "the use"),
        Field("ok", Type.TRUTH, "whether the tool says that it went well"),
        _why("the first 4,000 characters"),
    ),
    Kind.RETRY: (
        *_SAID,
        Field("status", Type.WHOLE, "the HTTP status that the model's server gave; 0 where it is not told"),
        Field("attempt", Type.WHOLE, "how often it failed; 0 where it is not told"),
        Field("delay_ms", Type.WHOLE, "milliseconds until it tries again; 0 where it is not told"),
    ),
    Kind.UNKNOWN: (
        *_TOLD,
        Field("type", Type.TEXT, "of the message"),
        Field("line", Type.TEXT, "its first 400 characters, as JSON"),
    ),
    Kind.GAP: (Field("missing", Type.WHOLE, "how many events"), _why("a sentence for `error`")),
    Kind.NOTE: (*_TOLD, _why("a sentence")),
}
"""The fields of each kind, the ones that are always there first, as far as that reads well."""


def strange(kind: Kind, data: Mapping[str, Any]) -> list[str]:
    """What of an event of this kind no row of FIELDS tells: fields unknown, missing, or of another type."""
    rows = {row.name: row for row in FIELDS[kind]}
    found = [f"{name}: no such field" for name in data if name not in rows]
    for row in rows.values():
        if row.name not in data:
            found += [f"{row.name}: missing"] if row.always else []
        elif not (row.null and data[row.name] is None) and not FITS[row.type](data[row.name]):
            found.append(f"{row.name}: {data[row.name]!r} is no {row.type}")
    return found

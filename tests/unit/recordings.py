"""Recorded transcripts, played to a codec the way a supervisor does it: what was written before a line, then the line.

A recording holds only what the CLI printed, so what had been written to it is found from what it answered. codex
answers by the ids of the recorder's requests; they are replaced by those that the codec's own requests have.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from supervisor.backends import CODECS, Codec, Setup
from supervisor.backends import codec as told
from supervisor.backends.codec import Decoded
from zoefs.contract.asks import Ask, Verdict
from zoefs.contract.spec import Spec

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "transcripts"
PROGRAMS = {"claude": "claude", "codex-app-server": "codex"}
"""How a recording's name begins, and whose it is."""
OPEN = {"midstream": "cid-cut", "midtool": "cid-cut", "midapproval": "cid-cut", "idle": "cid-w"}
OPEN |= {"reply10": "cid-after", "warm-reply": "cid-after"}
"""codex `resume-*`: the prompt of the turn that was open when the process before this one died."""
COMPACTS = frozenset({"0e599cde-9b80-4e2c-b823-98ac0d051763", "f6dbf13d-1cde-4118-9093-d68d4557cce8"})
"""claude: the messages that were `/compact`."""


@attrs.frozen
class Call:
    """A method of the codec that is called before line `at` is read: prompt, expect, steer, compact or interrupt."""

    at: int
    method: str
    message: str = ""


@attrs.frozen
class Recording:
    """`session`: the CLI's id before the first line; `told`: the one it goes by in the end. `answered`: asks that were
    answered, by their number in the order of asking."""

    name: str
    backend: str
    version: str
    scenario: str
    lines: tuple[bytes, ...]
    calls: tuple[Call, ...]
    session: str = ""
    fork: str = ""
    told: str = ""
    answered: tuple[int, ...] = ()

    @property
    def values(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@attrs.define
class Played:
    """What came of it: each event with the number of its line, and all that the codec wrote."""

    events: list[tuple[int, Decoded]] = attrs.Factory(list)
    written: list[tuple[int, bytes]] = attrs.Factory(list)

    def of(self, *kinds: type) -> list[Any]:
        return [event for _, event in self.events if isinstance(event, kinds)]


def make(backend: str, **more: Any) -> Codec:
    """A codec of one incarnation."""
    setup = Setup(name="a", spec=Spec(backend=backend), binary=f"/bin/{backend}", session="S", cwd="/w")
    return CODECS[backend](attrs.evolve(setup, **more))


def codec_of(recording: Recording, **more: Any) -> Codec:
    """A codec as it was when this recording began."""
    return make(recording.backend, **{"session": recording.session, "fork": recording.fork, **more})


def play(
    recording: Recording, codec: Codec | None = None, start: int = 0, stop: int | None = None, calls_from: int = 0
) -> Played:
    """Have the codec read the lines from `start` to `stop`, and do what was done from line `calls_from` on."""
    made = codec_of(recording) if codec is None else codec
    played, asked = Played(), 0
    calls = {call.at: [c for c in recording.calls if c.at == call.at] for call in recording.calls}
    for at, line in enumerate(recording.lines[:stop]):
        if at >= calls_from:
            for call in calls.get(at, []):
                if said := do(made, call):
                    played.written.append((at, said))
        decoded = made.decode(line) if at >= start else []
        played.events += [(at, event) for event in decoded]
        for event in decoded:
            if isinstance(event, told.Asked):
                if asked in recording.answered and at >= calls_from:
                    played.written.append((at, made.answer(event.ask, verdict_on(event.ask))))
                asked += 1
        if said := made.take():
            played.written.append((at, said))
    return played


def do(codec: Codec, call: Call) -> bytes:
    match call.method:
        case "prompt":
            return codec.prompt(call.message, "text")
        case "expect":
            codec.expect(call.message)
            return b""
        case "steer":
            return codec.steer(f"s:{call.message}", call.message, "text")
        case "compact":
            return codec.compact(call.message)
        case "interrupt":
            return codec.interrupt()
        case method:
            raise ValueError(method)


def verdict_on(ask: Ask) -> Verdict:
    return Verdict(True, answers={question.key: ("B",) for question in ask.questions})


@functools.cache
def recordings(backend: str = "") -> tuple[Recording, ...]:
    """All recordings, or those of one backend."""
    found = (_read(path) for path in sorted(TRANSCRIPTS.glob("*.jsonl")))
    return tuple(recording for recording in found if backend in ("", recording.backend))


def recording(name: str) -> Recording:
    return next(one for one in recordings() if one.name == name)


def _read(path: Path) -> Recording:
    program, version, scenario = next(
        (program, *path.stem.removeprefix(f"{program}-").split("-", 1))
        for program in PROGRAMS
        if path.name.startswith(f"{program}-")
    )
    lines = tuple(path.read_bytes().split(b"\n")[:-1])
    if PROGRAMS[program] == "claude":
        return _claude(path.stem, version, scenario, lines)
    return _codex(path.stem, version, scenario, lines)


def _claude(name: str, version: str, scenario: str, lines: tuple[bytes, ...]) -> Recording:
    values: list[dict[str, Any]] = [json.loads(line) for line in lines]
    session = next((str(v["session_id"]) for v in values if "session_id" in v), "S")
    calls: list[Call] = []
    queued: list[str] = []
    is_open, asked, gone = False, [], []
    for at, value in enumerate(values):
        message, state = str(value.get("command_uuid", "")), value.get("state")
        match value.get("type"):
            case "command_lifecycle" if message in COMPACTS:
                calls += [Call(at, "compact", message)] if state == "queued" else []
            case "command_lifecycle" if state == "queued":
                calls.append(Call(at, "steer" if is_open else "prompt", message))
                queued += [message] if is_open else []
                is_open = True
            case "command_lifecycle" if state == "started" and not is_open:
                calls.append(Call(0, "expect", message))
                is_open = True
            case "command_lifecycle" if message in queued:
                queued.remove(message)
            case "system" if value["subtype"] == "session_state_changed" and version == "2.1.197":
                if state == "running" and not is_open:
                    calls.append(Call(at, "prompt", "m1"))
                    is_open = True
            case "control_response" if str(value["response"].get("request_id")).startswith("int"):
                calls.append(Call(at, "interrupt"))
            case "control_request":
                asked.append(value["request_id"])
            case "control_cancel_request":
                gone.append(value["request_id"])
            case "result":  # what is queued still runs next
                is_open = bool(queued)
                queued = queued[1:]
    answered = tuple(n for n, id in enumerate(asked) if id not in gone)
    return Recording(name, "claude", version, scenario, lines, tuple(calls), session, "", session, answered)


def _codex(name: str, version: str, scenario: str, lines: tuple[bytes, ...]) -> Recording:
    values: list[dict[str, Any]] = [json.loads(line) for line in lines]
    threads = [v["params"]["threadId"] for v in values if "threadId" in v.get("params", {})]
    begins: dict[str, Any] = next((v["result"]["thread"] for v in values if "thread" in v.get("result", {})), {})
    told_session = threads[0] if threads else str(begins.get("id", ""))
    is_new = bool(begins) and any(v.get("method") == "thread/started" for v in values)
    calls: list[Call] = []
    if message := OPEN.get(scenario.removeprefix("resume-")) if scenario.startswith("resume-") else None:
        calls.append(Call(0, "expect", message))
    seen: dict[str, int] = {}
    for at, value in enumerate(values):
        if "method" not in value:
            value["id"] = _our_id(value, _said_later(values, at), seen, calls, at)
    resolved = [v["params"]["requestId"] for v in values if v.get("method") == "serverRequest/resolved"]
    asked = [v["id"] for v in values if "method" in v and "id" in v]
    ended = next((at for at, v in enumerate(values) if v.get("method") == "turn/completed"), len(values))
    late = [v["params"]["requestId"] for v in values[ended:] if v.get("method") == "serverRequest/resolved"]
    return Recording(
        name,
        "codex",
        version,
        scenario,
        tuple(json.dumps(value, ensure_ascii=False).encode() for value in values),
        tuple(calls),
        "" if is_new else told_session,
        str(begins.get("forkedFromId") or ""),
        told_session,
        tuple(n for n, id in enumerate(asked) if id in resolved and id not in late),
    )


def _said_later(values: list[dict[str, Any]], at: int) -> Iterator[dict[str, Any]]:
    return (v["params"]["item"] for v in values[at:] if v.get("method") == "item/started")


def _our_id(
    value: dict[str, Any], later: Iterator[dict[str, Any]], seen: dict[str, int], calls: list[Call], at: int
) -> str:
    """What the codec would have named the request that this answers; what was asked for is added to `calls`."""
    result, why = value.get("result", {}), value.get("error", {}).get("message", "")
    items = list(later)
    client = next((str(item["clientId"]) for item in items if item.get("clientId")), f"m{at}")
    if "userAgent" in result:
        return "init"
    if "approvalPolicy" in result and not seen.get("thread"):
        seen["thread"] = 1
        return "thread"
    if "turn" in result:
        is_steer = seen.get("turn") == result["turn"]["id"]
        seen["turn"] = result["turn"]["id"]
        calls.append(Call(at, "steer" if is_steer else "prompt", client))
        return f"{'steer' if is_steer else 'prompt'}:{client}"
    if "turnId" in result:
        calls.append(Call(at, "steer", client))
        return f"steer:{client}"
    if [turn for turn in result.get("data", ()) if turn.get("itemsView") == "full"] and seen.get("thread"):
        return "turns"
    if value.get("result") == {}:
        is_compact = any(item["type"] == "contextCompaction" for item in items)
        calls.append(Call(at, "compact" if is_compact else "interrupt", "c" if is_compact else ""))
        return "compact" if is_compact else "interrupt:1"
    if "no rollout found" in why:
        return "thread"
    return f"other:{value['id']}"


def in_words(recording: Recording, played: Played | None = None) -> list[str]:
    """What a recording means, an event a line: its kind and the values that matter. Bits of one piece are one line."""
    words: list[str] = []
    bits: list[str] = []
    asks: list[str] = []
    for _, event in (played or play(recording)).events:
        if isinstance(event, told.Delta):
            bits.append(event.text)
            continue
        if bits:
            words.append(f"delta {len(bits)} {_short(''.join(bits))}")
        bits = []
        if isinstance(event, told.Asked):
            asks.append(event.ask.id)
        words.append(_in_words(event, asks))
    return [*words, *([f"delta {len(bits)} {_short(''.join(bits))}"] if bits else [])]


def _short(value: Any, length: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _in_words(event: Decoded, asks: list[str]) -> str:
    match event:
        case told.Ready():
            return f"ready version={event.version or '-'} model={event.model or '-'}"
        case told.SessionChanged():
            return f"session {event.session}"
        case told.Capable():
            return f"capable {len(event.words)} words" + (f" version={event.version}" if event.version else "")
        case told.Accepted():
            return f"accepted {event.message}"
        case told.Text():
            return f"text {_short(event.text)}"
        case told.Tool():
            kept = event.input
            if isinstance(kept, dict):
                kept = {key: kept[key] for key in ("command", "changes", "questions") if key in kept}
            return f"tool {event.name} {_short(kept, 90)}"
        case told.ToolResult():
            return f"result {'ok' if event.ok else 'not'} {_short(event.text)}"
        case told.Asked(ask=ask):
            questions = "".join(f" {q.key}?{'|'.join(q.choices)}" for q in ask.questions)
            return f"asked #{len(asks)} {ask.tool}{questions} rule={_short(ask.rule, 90)}"
        case told.AskGone():
            return f"gone #{asks.index(event.ask) + 1}"
        case told.Steered():
            return f"steered {'ok' if event.ok else 'not'} {event.id} {event.text}".rstrip()
        case told.Compacted():
            return f"compacted {'ok' if event.ok else 'not'} {event.text} {_spent(event.spent)}"
        case told.TurnEnd():
            why = f" because {_short(event.reason)}" if event.reason else ""
            then = f", goes on with {event.goes_on}" if event.goes_on else ""
            return f"end {event.how} {_short(event.text)}{why} {_spent(event.spent)}{then}"
        case told.Retry():
            return f"retry {event.status} attempt={event.attempt}"
        case told.Unable():
            return f"unable {event.reason} {event.text}"
        case _:
            return repr(event)


def _spent(spent: told.Spent) -> str:
    usd = "-" if spent.usd is None else f"{spent.usd:.5f}"
    return f"[{usd} in={spent.tokens_in} out={spent.tokens_out}]"

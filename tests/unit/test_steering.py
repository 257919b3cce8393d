"""What becomes of a steer and of an order to compact: said, settled, or made a prompt; after a crash too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from supervisor import ctl, steering
from supervisor.backends import codec as told
from tests.unit.desks import Bench
from zoefs.contract.home import OrderKind, parse_order
from zoefs.contract.words import Fate, Verb

Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    benches: list[Bench] = []

    def made(**more: object) -> Bench:
        benches.append(Bench(tmp_path / str(len(benches)), **more))  # type: ignore[arg-type]
        return benches[-1]

    yield made
    for bench in benches:
        bench.close()


def kinds(bench: Bench) -> list[str]:
    return [event.kind for event in bench.told()]


def queued(bench: Bench) -> list[bytes]:
    """The texts of the steers that wait as prompts."""
    orders = [order for name in bench.orders() if (order := parse_order(name)) is not None]
    assert all(order.kind is OrderKind.STEER for order in orders)
    return [(bench.agent.new / order.name).read_bytes() for order in orders]


@pytest.mark.parametrize("backend", ["claude", "codex"])
def test_a_steer_is_said_into_the_turn_and_settled_when_it_is_taken(make: Make, backend: str) -> None:
    bench = make(backend=backend)
    line = bench.line(Verb.STEER, "more of it\u2028", key="k1")
    trio.run(steering.steer, bench.desk, line)
    (said,) = bench.written()
    message = bench.desk.message_id("k1")
    assert message in (said.get("uuid"), said.get("params", {}).get("clientUserMessageId"))
    assert kinds(bench) == ["verb-begun"], "begun before it is said"
    assert bench.desk.pending == [line]
    assert steering.steers(bench.desk) == [line]
    steering.steered(bench.desk, "other", True, "")
    assert bench.desk.pending == [line]
    steering.steered(bench.desk, "k1", True, "")
    (done,) = bench.told()
    assert (done.kind, done.data["ok"], done.data["steer"]) == ("verb-done", True, "k1")
    assert "turn 1" in done.text("text")
    assert bench.desk.pending == []
    assert bench.orders() == []
    assert bench.desk.fold.receipts["k1"].fate is Fate.DONE
    assert "more of it" in bench.agent.chat.read_text()


def test_a_steer_that_was_not_taken_becomes_a_prompt_under_the_same_id(make: Make) -> None:
    bench = make()
    trio.run(steering.steer, bench.desk, bench.line(Verb.STEER, "more", key="k1"))
    bench.told()
    steering.steered(bench.desk, "k1", False, "the turn ended before it was taken")
    (done,) = bench.told()
    assert done.data["ok"] is True
    assert done.text("key") == "", "its receipt is the prompt's from now on"
    assert done.text("queued") == bench.orders()[0]
    assert done.text("text") == "queued as a prompt"
    assert queued(bench) == [b"more"]
    order = parse_order(bench.orders()[0])
    assert order is not None
    assert order.id == "k1"
    assert "k1" not in bench.desk.fold.ids, "it is to be given yet"


@pytest.mark.parametrize("state", ["no turn", "no process", "ended", "not working", "cannot"])
def test_a_steer_that_nobody_can_take_is_queued_at_once(make: Make, state: str) -> None:
    bench = make(turn=state != "no turn", backend="claude" if state == "cannot" else "codex")
    match state:
        case "no process":
            bench.desk.running = None
        case "ended":
            bench.running.ended = True
        case "not working":
            bench.running.working = False
        case "cannot":
            bench.hear({"type": "system", "subtype": "init", "session_id": "T", "capabilities": []})
    trio.run(steering.steer, bench.desk, bench.line(Verb.STEER, "more"))
    assert queued(bench) == [b"more"]
    assert bench.written() == []
    assert kinds(bench) == ["verb-done"]
    assert bench.desk.pending == []


def test_a_steer_without_a_key_has_an_id_of_its_line(make: Make) -> None:
    bench = make()
    first, second = bench.line(Verb.STEER, "a", stamp=7), bench.line(Verb.STEER, "a", stamp=8)
    assert steering.steer_order(first).id != steering.steer_order(second).id
    assert steering.steer_order(first) == steering.steer_order(first)
    assert steering.steer_order(first).stamp == first.order.stamp, "it keeps its place among the prompts"


def test_queueing_again_after_a_crash_finds_the_prompt_in_its_place(make: Make) -> None:
    bench = make()
    line = bench.line(Verb.STEER, "more", key="k1")
    trio.run(steering.steer, bench.desk, line)
    steering.queue(bench.desk, line)
    before = bench.orders()
    trio.run(steering.steer, bench.desk, line)  # a new supervisor obeys the line that was not noted done
    assert bench.orders() == before
    assert queued(bench) == [b"more"]


def test_when_the_cli_dies_its_steers_become_prompts_and_its_compaction_failed(make: Make) -> None:
    bench = make()
    trio.run(steering.steer, bench.desk, bench.line(Verb.STEER, "one", stamp=7))
    trio.run(steering.steer, bench.desk, bench.line(Verb.STEER, "two", stamp=8))
    bench.desk.begin(bench.line(Verb.COMPACT, stamp=9))
    bench.told()
    steering.let_go(bench.desk)
    assert queued(bench) == [b"one", b"two"]
    assert [event.data["ok"] for event in bench.told()] == [True, True, False]
    assert bench.desk.pending == []


def test_a_steer_that_goes_on_opens_the_next_turn(make: Make) -> None:
    bench = make(backend="claude")
    line = bench.line(Verb.STEER, "more", key="k1")
    trio.run(steering.steer, bench.desk, line)
    bench.told()
    notes = steering.goes_on(bench.desk, "k1", 1)
    assert [kind for kind, _ in notes] == ["verb-done", "prompt-given", "prompt-accepted"]
    bench.desk.note(("turn-ended", {"inc": 1, "turn": 1, "how": "done", "raw_end": 9}), *notes)
    fold = bench.desk.fold
    assert (fold.turn, fold.given, fold.turn_open) == (2, "k1", True)
    assert fold.given_order == steering.steer_order(line).name
    assert (bench.agent.taken / fold.given_order).read_bytes() == b"more", "its bytes are the prompt's"
    assert fold.receipts["k1"].fate is Fate.ACCEPTED
    assert bench.desk.pending == []
    assert steering.goes_on(bench.desk, "k1", 1) == []


@pytest.mark.parametrize("backend", ["claude", "codex"])
def test_who_takes_over_expects_what_was_begun(make: Make, backend: str) -> None:
    """claude is told again, under the same id; codex cannot be, and its turn's end settles it."""
    bench = make(backend=backend)
    steer, compact = bench.line(Verb.STEER, "more", key="k1", stamp=7), bench.line(Verb.COMPACT, stamp=8)
    steering.take_up(bench.desk, bench.running, [steer, compact, bench.line(Verb.STOP, stamp=9)])
    assert bench.desk.pending == [steer, compact]
    assert bench.running.compacting > 0
    said = bench.written()
    assert len(said) == (2 if backend == "claude" else 0)
    assert [line["uuid"] for line in said] == [bench.desk.message_id(id) for id in ("k1", compact.order.name)][
        : len(said)
    ]
    end = {
        "claude": {"type": "result", "terminal_reason": "completed", "is_error": False, "result": "x", "num_turns": 1},
        "codex": {"method": "turn/completed", "params": {"turn": {"id": "U", "status": "completed", "items": []}}},
    }
    events = bench.hear(end[backend])
    if backend == "claude":
        assert [event.goes_on for event in events if isinstance(event, told.TurnEnd)] == ["k1"]
    else:
        assert [(event.id, event.ok) for event in events if isinstance(event, told.Steered)] == [("k1", False)]


@pytest.mark.parametrize("taken", [True, False])
def test_a_steer_of_a_cli_that_died_with_its_supervisor_is_settled_by_what_it_told(make: Make, taken: bool) -> None:
    bench = make(backend="codex")
    line = bench.line(Verb.STEER, "more", key="k1")
    trio.run(steering.steer, bench.desk, line)
    bench.desk.pending.clear()  # the supervisor is another one
    bench.desk.ctl_orders = [line.order]
    bench.running.ended = True
    ctl.take_up(bench.desk)
    item = {"type": "userMessage", "clientId": bench.desk.message_id("k1"), "id": "i"}
    events = bench.hear({"method": "item/started", "params": {"item": item}}) if taken else []
    for event in events:
        assert isinstance(event, told.Steered)
        steering.steered(bench.desk, event.id, event.ok, event.text)
    steering.let_go(bench.desk)
    assert queued(bench) == ([] if taken else [b"more"])
    assert bench.desk.pending == []


def test_who_takes_over_takes_each_line_up_once(make: Make) -> None:
    bench = make(backend="codex")
    lines = [bench.line(Verb.STEER, text, key=text, stamp=stamp) for stamp, text in enumerate("abc", 7)]
    for line in lines[:2]:
        trio.run(steering.steer, bench.desk, line)
    bench.desk.pending.clear()  # the supervisor is another one
    bench.desk.ctl_orders = [line.order for line in lines]
    ctl.take_up(bench.desk)
    assert bench.desk.pending == lines[:2], "the third was not begun"
    assert list(ctl.lines_of(bench.desk, [])) == lines[2:]


def test_a_long_steer_taken_up_is_noted_begun(make: Make) -> None:
    bench = make(backend="claude")
    line = bench.line(Verb.STEER, "x" * 100_000, key="k1")
    bench.desk.ctl_orders = [line.order]
    bench.desk.note(("verb-begun", {"ctl": line.order.name, "verb": "steer", "turn": 1}))
    bench.running.watched = True  # nobody waits for the FIFO here
    ctl.take_up(bench.desk)
    assert not bench.running.drained
    assert bench.desk.fold.stdin_open


def test_a_prompts_acceptance_does_not_speak_for_the_steer_behind_it(make: Make) -> None:
    bench = make(backend="claude")
    bench.desk.note(("stdin-begun", {"inc": 1, "bytes": 200_000, "id": "p1"}))
    bench.running.watched = True  # nobody waits for the FIFO here
    bench.desk.put(bench.running, b"x" * 200_000 + b"\n", begun=True)
    assert bench.desk.fold.stdin_for == "p1"
    trio.run(steering.steer, bench.desk, bench.line(Verb.STEER, "more"))
    bench.desk.note(("prompt-accepted", {"inc": 1, "id": "p1", "turn": 1}))
    assert bench.desk.fold.stdin_open, "the steer is in the outbox yet"


@pytest.mark.parametrize("backend", ["claude", "codex"])
def test_an_interrupt_reaches_a_compaction_at_any_time(make: Make, backend: str) -> None:
    bench = make(backend=backend, turn=False)
    steering.compact(bench.desk, bench.line(Verb.COMPACT, stamp=7))
    bench.written()
    trio.run(ctl.obey, bench.desk, bench.line(Verb.INTERRUPT, stamp=8))
    if backend == "codex":  # before it began, codex would refuse
        assert bench.written() == []
        bench.hear({"method": "turn/started", "params": {"turn": {"id": "U"}}})
        bench.desk.put(bench.running, bench.codec.take())
    assert len(bench.written()) == 1


def test_a_text_of_a_steer_is_its_lines_to_move_until_it_is_done(make: Make) -> None:
    bench = make()
    line = bench.line(Verb.STEER, "more")
    order = steering.steer_order(line)
    bench.desk.ctl_orders = [line.order]
    assert ctl.holds(bench.desk, order)
    bench.desk.note(("verb-done", {"ctl": line.order.name, "verb": "steer", "order": line.order.name}))
    assert not ctl.holds(bench.desk, order)


# -- compaction -------------------------------------------------------------------------------------------------------


def test_a_compaction_is_noted_with_what_it_cost(make: Make) -> None:
    bench = make(turn=False)
    line = bench.line(Verb.COMPACT, key="k2")
    steering.compact(bench.desk, line)
    assert [value["method"] for value in bench.written()] == ["thread/compact/start"]
    assert bench.running.compacting > 0
    assert kinds(bench) == ["verb-begun"]
    spent = told.Spent(None, 1_000_000, 0, 0, "gpt-5.5")
    steering.compacted(bench.desk, bench.running, told.Compacted(True, "", spent), 77)
    event, done = bench.told()
    assert (event.kind, event.data["ok"], event.data["raw_end"]) == ("compacted", True, 77)
    assert event.data["cost_usd"] == 5.0
    assert event.data["cost_estimated"] is True
    assert (done.kind, done.data["ok"], done.text("key")) == ("verb-done", True, "k2")
    assert bench.running.compacting == 0.0
    assert bench.desk.fold.spent.usd == 5.0


def test_a_compaction_that_fails_fails_its_verb_with_the_reason(make: Make) -> None:
    bench = make(turn=False)
    steering.compact(bench.desk, bench.line(Verb.COMPACT))
    bench.told()
    steering.compacted(bench.desk, bench.running, told.Compacted(False, "nothing to shorten"), 5)
    event, done = bench.told()
    assert (event.data["ok"], done.data["ok"]) == (False, False)
    assert event.text("text") == done.text("text") == "nothing to shorten"


def test_a_prompt_that_was_given_before_is_not_cut_by_a_compaction(make: Make) -> None:
    """The mount permitted it while the agent waited; codex would interrupt the turn that has begun since."""
    bench = make()
    steering.compact(bench.desk, bench.line(Verb.COMPACT))
    (done,) = bench.told()
    assert done.data["ok"] is False
    assert bench.written() == []
    assert bench.running.compacting == 0.0


@pytest.mark.parametrize("gone", [True, False])
def test_only_a_cli_that_runs_can_compact(make: Make, gone: bool) -> None:
    bench = make(turn=False)
    if gone:
        bench.desk.running = None
    bench.running.ended = True
    steering.compact(bench.desk, bench.line(Verb.COMPACT))
    (done,) = bench.told()
    assert done.data["ok"] is False
    assert bench.desk.pending == []

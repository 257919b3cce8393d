"""The paths of HOME, and the names of the files in `orders/`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoefs.contract.home import (
    PROMPTS,
    AgentHome,
    Home,
    Order,
    OrderKind,
    Stage,
    made_id,
    parse_order,
    parse_stage,
    segment_of,
    stamp_of,
)
from zoefs.contract.words import SINGLE_WRITE_MAX, AgentName, OrderId, is_order_id

QUICK = settings(deadline=None, max_examples=200)
IDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", fullmatch=True).map(OrderId)
STAMPS = st.integers(0, 2**64 - 1).map(stamp_of)
ORDERS = st.builds(Order, stamp=STAMPS, kind=st.sampled_from(OrderKind), id=IDS)
STAGES = st.one_of(
    st.builds(Stage, order=ORDERS, several=st.booleans()),
    st.builds(Stage, order=ORDERS, flushed=st.integers(0, 2**24)),
)
ORDER = Order(stamp_of(1), OrderKind.PROMPT, OrderId("k"))
NEAR = st.text(alphabet="0f.@+-prompt\n ", max_size=30)


@QUICK
@given(ORDERS)
def test_an_order_survives_its_name(order: Order) -> None:
    assert parse_order(order.name) == order
    assert "/" not in order.name
    assert len(order.name.encode()) + len("@16777216") <= 255
    assert is_order_id(made_id(order.stamp))


@QUICK
@given(STAGES)
def test_a_stage_survives_its_name(stage: Stage) -> None:
    assert parse_stage(stage.name) == stage
    assert (parse_order(stage.name) is None) == (stage.name != stage.order.name)


@QUICK
@given(st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_names_sort_as_their_stamps(numbers: list[int]) -> None:
    orders = [Order(stamp_of(number), OrderKind.CTL, OrderId(f"k{n}")) for n, number in enumerate(numbers)]
    assert [o.name for o in sorted(orders)] == sorted(o.name for o in orders)
    assert [int(o.stamp, 16) for o in sorted(orders)] == sorted(numbers)


@QUICK
@given(NEAR | NEAR.map(lambda tail: ORDER.name + tail) | st.text(max_size=40))
def test_whatever_parses_has_that_name(name: str) -> None:
    order, stage = parse_order(name), parse_stage(name)
    assert order is None or order.name == name
    assert stage is None or stage.name == name


@pytest.mark.parametrize("tail", ["@\u0663", "@007", "@-1", "@+1", "@ 1", "@1 ", "@", "@1@1", "+@1", "++", "@1+", "\n"])
def test_a_stage_of_another_spelling_is_none_of_ours(tail: str) -> None:
    assert parse_stage(ORDER.name + tail) is None


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".k", ".prompt", "k", "prompt.k", "0000000000000001.prompt.", "0000000000000001.prompt"),
        *("000000000000001.prompt.k", "00000000000000001.prompt.k", "000000000000000A.prompt.k"),
        *("0000000000000001.nothing.k", "0000000000000001.PROMPT.k", "0000000000000001.prompt..k"),
        *("0000000000000001.prompt.-k", "0000000000000001.prompt.k\n", "0000000000000001.prompt.k/l"),
        *("\u06600000000000000001.prompt.k", "0000000000000001.prompt.\u00e9", " 0000000000000001.prompt.k"),
    ],
)
def test_other_names_are_none_of_ours(name: str) -> None:
    assert parse_order(name) is None
    assert parse_stage(name) is None


def test_every_kind_of_order_has_a_name() -> None:
    for kind in OrderKind:
        assert parse_order(f"0000000000000001.{kind}.k") == Order(stamp_of(1), kind, OrderId("k"))
    assert {"prompt", "recovered", "steer"} == PROMPTS


FLUSHED, ONE, SEVERAL = Stage(ORDER, flushed=5000), Stage(ORDER), Stage(ORDER, several=True)


@pytest.mark.parametrize(
    ("stage", "size", "whole"),
    [
        # flushed after its last write, whatever its length
        (FLUSHED, 5000, True),
        (Stage(ORDER, flushed=1), 1, True),
        (Stage(ORDER, flushed=2**24), 2**24, True),
        # written on after the flush, or shorter than what was flushed
        (FLUSHED, 5001, False),
        (FLUSHED, 4999, False),
        (Stage(ORDER, flushed=1), 2, False),
        (Stage(ORDER, flushed=0), 1, False),
        # one single write below 4,096 bytes
        (ONE, 1, True),
        (ONE, 4095, True),
        (ONE, 4096, False),
        (ONE, 4097, False),
        # several writes, never flushed
        (SEVERAL, 1, False),
        (SEVERAL, 4095, False),
        (SEVERAL, 5000, False),
        # empty is nothing
        (Stage(ORDER, flushed=0), 0, False),
        (ONE, 0, False),
        (SEVERAL, 0, False),
    ],
)
def test_what_is_whole_after_the_mount_died(stage: Stage, size: int, whole: bool) -> None:
    assert stage.is_whole(size, SINGLE_WRITE_MAX) is whole
    read_back = parse_stage(stage.name)
    assert read_back is not None
    assert read_back.is_whole(size, SINGLE_WRITE_MAX) is whole


HOME = Home(Path("/h"))
AGENT = HOME.agent(AgentName("r1"))


def test_the_layout_is_that_of_the_page() -> None:
    """HOME of tree.md."""
    name = AGENT.name
    top = (HOME.config, HOME.version, HOME.retired, HOME.mount_lock, HOME.supervisor_lock)
    assert shown(top) == "config.toml version retired mount.lock supervisor.lock"
    logs = (HOME.journal(name), HOME.supervisor_log, HOME.mount_log)
    assert shown(logs) == "log/agents/r1.jsonl log/supervisor.jsonl log/zoefs.jsonl"
    assert shown((AGENT.path,)) == "agents/r1"
    assert shown((segment_of(HOME.journal(name), 42),)) == "log/agents/r1.jsonl.000000000042"
    files = (AGENT.born, AGENT.spec, AGENT.session, AGENT.chat, AGENT.stdin, AGENT.pid, AGENT.lock, AGENT.work)
    assert shown(files, AGENT.path) == "born spec.toml session chat stdin pid lock work"
    assert shown((AGENT.snapshot,), AGENT.path) == "fold.json"
    numbered = (AGENT.turn(3), AGENT.raw(3), AGENT.err(3), AGENT.exit(3))
    assert shown(numbered, AGENT.path) == "turns/3 raw/3.ndjson err/3.log exit/3"
    orders = (AGENT.tmp, AGENT.new, AGENT.taken, AGENT.cancelled, AGENT.cut)
    assert shown(orders, AGENT.orders) == "tmp new taken cancelled cut"
    assert shown(HOME.shared) == "tasks asks workflows roles context channels bonfire hosts"


def shown(paths: tuple[Path, ...], below: Path = HOME.path) -> str:
    return " ".join(path.relative_to(below).as_posix() for path in paths)


@pytest.mark.parametrize("place", [HOME, AGENT])
def test_directories_stand_with_parents_first(place: Home | AgentHome) -> None:
    seen = {place.path.parent}
    for path in place.directories:
        assert path.parent in seen
        seen.add(path)
    assert len(seen) == len(place.directories) + 1


def test_every_file_of_an_agent_has_its_directory() -> None:
    files = [AGENT.spec, AGENT.session, AGENT.turn(1), AGENT.raw(1), AGENT.err(1), AGENT.exit(1), AGENT.chat, AGENT.pid]
    assert {path.parent for path in files} <= set(AGENT.directories)
    assert {HOME.journal(AGENT.name).parent, HOME.mount_log.parent, AGENT.path.parent} <= set(HOME.directories)

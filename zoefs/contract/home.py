"""Every path of HOME, once, and the names of the files in `orders/`.

    agents/NAME/   born maker spec.toml session orders/{tmp,new,taken,cancelled,cut}/ turns/N chat raw/N.ndjson
                   err/N.log exit/N stdin pid lock work/ fold.json
    log/           agents/NAME.jsonl supervisor.jsonl zoefs.jsonl, and the older segments of each: JOURNAL.FIRST
    retired/       what rmdir moved away
    hosts/         symlinks to the mounts of other machines; beside it the directories of SHARED

An order is one file. Its name is `STAMP.WHAT.ID`: orders sort by STAMP, WHAT says what it asks (OrderKind), ID is
the client's id, or one made from the stamp. While the mount writes it, it stands in `orders/tmp/` and its name also
tells what a later reader may believe of its bytes (Stage):

    STAMP.WHAT.ID        one write so far, not flushed
    STAMP.WHAT.ID+       several writes since the last flush
    STAMP.WHAT.ID@LEN    flushed (fsynced) when it was LEN bytes long

One rename makes it count: `tmp/` to `new/`. A claim (`new/` to `taken/`) and a cancel (`new/` to `cancelled/`) are
one rename each, so exactly one of them wins. `tmp/.NAME` is a client's own draft (`inbox/.NAME`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import attrs

from zoefs.contract.words import AgentName, OrderId, Stamp


class OrderKind(StrEnum):
    """What an order asks of the supervisor."""

    PROMPT = "prompt"
    RECOVERED = "recovered"
    """A prompt that a restarted mount found staged and committed: its writer may have seen an error."""
    STEER = "steer"
    """The text of a steer, which its line of ctl keeps in `taken/`; in `new/` it is a prompt like any other."""
    CTL = "ctl"
    OUT = "out"
    """Text written to `out` by somebody else."""
    ANSWER = "answer"
    """Text that the agent itself wrote to its own `out`."""


PROMPTS = frozenset({OrderKind.PROMPT, OrderKind.RECOVERED, OrderKind.STEER})
STEER_LATE = "a steer that came too late for its turn and is one of its own, behind turn"
STEER_QUEUED = "a steer that no running turn could take; it is a prompt of its own"

_FIRST = re.compile("[0-9]{12,}")
_ORDER = re.compile(r"([0-9a-f]{16})\.([a-z]+)\.([A-Za-z0-9_][A-Za-z0-9._-]*)")


@attrs.frozen(order=True)
class Order:
    """The name of one order; sorts by stamp."""

    stamp: Stamp
    kind: OrderKind
    id: OrderId

    @property
    def name(self) -> str:
        """The file name."""
        return f"{self.stamp}.{self.kind}.{self.id}"


def parse_order(name: str) -> Order | None:
    """The order a file name stands for; None where it is none of ours."""
    match = _ORDER.fullmatch(name)
    if match is None or match[2] not in OrderKind.__members__.values():
        return None
    return Order(Stamp(match[1]), OrderKind(match[2]), OrderId(match[3]))


@attrs.frozen
class Stage:
    """An order that is still being written. `flushed`: its length at the last flush, None where there was none."""

    order: Order
    several: bool = False
    flushed: int | None = None

    @property
    def name(self) -> str:
        """The file name in `orders/tmp/`."""
        mark = "+" if self.several else "" if self.flushed is None else f"@{self.flushed}"
        return self.order.name + mark

    def is_whole(self, size: int, single_max: int) -> bool:
        """Whether a file of `size` bytes under this name was accepted as a whole (guarantee 1)."""
        if self.flushed is not None:
            return size == self.flushed and size > 0
        return not self.several and 0 < size < single_max


def parse_stage(name: str) -> Stage | None:
    """The stage a file name of `orders/tmp/` stands for; None where it is a draft or none of ours."""
    base, at, length = name.partition("@")
    if at and re.fullmatch("0|[1-9][0-9]*", length) is None:
        return None
    several = not at and base.endswith("+")
    order = parse_order(base.removesuffix("+") if several else base)
    return None if order is None else Stage(order, several, int(length) if at else None)


def stamp_of(number: int) -> Stamp:
    """The stamp of a nanosecond count."""
    return Stamp(f"{number:016x}")


def made_id(stamp: Stamp) -> OrderId:
    """The id made for a prompt that came through `in`."""
    return OrderId(f"in-{stamp}")


def segment_of(journal: Path, first: int) -> Path:
    """Where a journal's segment that begins with event `first` is kept once a newer one is the current.

    No agent's journal has such a name: they end in `.jsonl`.
    """
    return journal.with_name(f"{journal.name}.{first:012d}")


def first_of(journal: Path, name: str) -> int | None:
    """The first event of the older segment with this file name; None where it is none of this journal."""
    head, _, first = name.rpartition(".")
    return int(first) if head == journal.name and _FIRST.fullmatch(first) else None


@attrs.frozen
class AgentHome:
    """The directory of one agent in HOME."""

    name: AgentName
    path: Path

    @property
    def born(self) -> Path:
        """A random word written at mkdir; tells this agent from an earlier one of the same name."""
        return self.path / "born"

    @property
    def maker(self) -> Path:
        """The born word of the agent that made this one; absent where a person did."""
        return self.path / "maker"

    @property
    def spec(self) -> Path:
        """The spec, written by the mount."""
        return self.path / "spec.toml"

    @property
    def session(self) -> Path:
        """The CLI's session id and a newline."""
        return self.path / "session"

    @property
    def orders(self) -> Path:
        """The parent of the five order directories."""
        return self.path / "orders"

    @property
    def tmp(self) -> Path:
        """Orders being written, and drafts."""
        return self.orders / "tmp"

    @property
    def new(self) -> Path:
        """Orders accepted."""
        return self.orders / "new"

    @property
    def taken(self) -> Path:
        """Orders claimed by the supervisor; the bytes stay as the record."""
        return self.orders / "taken"

    @property
    def cancelled(self) -> Path:
        """Prompts removed by their client while they waited; the supervisor notes and removes them."""
        return self.orders / "cancelled"

    @property
    def cut(self) -> Path:
        """Prompts that were cut off by the death of the mount."""
        return self.orders / "cut"

    @property
    def turns(self) -> Path:
        """`turns/N` holds the answer of turn N."""
        return self.path / "turns"

    def turn(self, number: int) -> Path:
        """The answer of one turn."""
        return self.turns / str(number)

    @property
    def chat(self) -> Path:
        """The conversation for people."""
        return self.path / "chat"

    def raw(self, incarnation: int) -> Path:
        """What one incarnation wrote to stdout."""
        return self.path / "raw" / f"{incarnation}.ndjson"

    def err(self, incarnation: int) -> Path:
        """What one incarnation wrote to stderr."""
        return self.path / "err" / f"{incarnation}.log"

    def exit(self, incarnation: int) -> Path:
        """The shell exit code of one incarnation and a newline, written by its keeper."""
        return self.path / "exit" / str(incarnation)

    @property
    def stdin(self) -> Path:
        """The FIFO that the keeper holds, of a stream agent that runs."""
        return self.path / "stdin"

    @property
    def pid(self) -> Path:
        """The keeper's start mark: `pid starttime incarnation boot-id`."""
        return self.path / "pid"

    @property
    def lock(self) -> Path:
        """Held (flock) by the keeper for its life, and by whoever retires or starts the agent."""
        return self.path / "lock"

    @property
    def snapshot(self) -> Path:
        """The fold as of some event of the journal, written by the supervisor: a cache, never the truth."""
        return self.path / "fold.json"

    @property
    def work(self) -> Path:
        """The default cwd."""
        return self.path / "work"

    @property
    def directories(self) -> tuple[Path, ...]:
        """What mkdir makes, parents first."""
        orders = (self.orders, self.tmp, self.new, self.taken, self.cancelled, self.cut)
        return (self.path, *orders, self.turns, self.path / "raw", self.path / "err", self.path / "exit", self.work)


@attrs.frozen
class Home:
    """HOME as a whole. `path` is absolute."""

    path: Path

    @property
    def agents(self) -> Path:
        """One directory an agent."""
        return self.path / "agents"

    @property
    def retired(self) -> Path:
        """Where rmdir moves an agent: `NAME.BORN`."""
        return self.path / "retired"

    @property
    def log(self) -> Path:
        """The event log directory."""
        return self.path / "log"

    @property
    def agent_logs(self) -> Path:
        """The agents' journals."""
        return self.log / "agents"

    def journal(self, name: AgentName) -> Path:
        """The current segment of an agent's journal; it outlives the agent."""
        return self.agent_logs / f"{name}.jsonl"

    @property
    def supervisor_log(self) -> Path:
        """The supervisor's own journal."""
        return self.log / "supervisor.jsonl"

    @property
    def mount_log(self) -> Path:
        """The mount's journal: refusals and recoveries."""
        return self.log / "zoefs.jsonl"

    @property
    def config(self) -> Path:
        """Defaults for specs: the table `[defaults]`."""
        return self.path / "config.toml"

    @property
    def version(self) -> Path:
        """The layout's version and a newline."""
        return self.path / "version"

    @property
    def mount_lock(self) -> Path:
        """Held by the mount daemon; its text is `pid starttime boot mountpoint version`."""
        return self.path / "mount.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor; its text is `pid starttime boot version`, its mtime the heartbeat."""
        return self.path / "supervisor.lock"

    @property
    def shared(self) -> tuple[Path, ...]:
        """The directories that MOUNT shows through."""
        return tuple(self.path / name for name in (*SHARED, "hosts"))

    @property
    def new_tasks(self) -> Path:
        """Where tasks are given."""
        return self.path / "tasks" / "new"

    @property
    def directories(self) -> tuple[Path, ...]:
        """What `init` makes, parents first."""
        return (self.path, self.agents, self.retired, self.log, self.agent_logs, *self.shared, self.new_tasks)

    def agent(self, name: AgentName) -> AgentHome:
        """The directory of one agent."""
        return AgentHome(name, self.agents / name)


SHARED = ("tasks", "asks", "workflows", "roles", "context", "channels", "bonfire")
LAYOUT = "1"
RESERVE = 1 << 18
"""Bytes that must be free on HOME's disk before a prompt is given: its answer is to be kept."""
HEARTBEAT_SECONDS = 1.0
HEARTBEAT_STALE = 5.0
"""A supervisor whose heartbeat is older than this many seconds is `degraded`: it lives and does not work."""

"""python -m tests.bench.run [WHAT|all]: the tables, ours beside references of the run. WHAT is one of:

status  open + read + close of `status`: a do-nothing pyfuse3 server, a minimal C server
prompt  close() returned to bytes at the CLI, and prompt to answer: a bare chain of processes, tmux
wake    the CLI's line to a woken poll: the same
up      `zoefs up`: a Python that imports what it needs
decode  lines of a CLI decoded and journaled a second: a loop that parses and writes each
stream  --agents agents at --rate deltas a second: one processor
scale   --sizes agents: looking, memory, rest, start; a do-nothing server, tmpfs, few agents (not part of `all`)
Without a `zoefs` command (see subject.py) only the references are shown.
"""

import argparse
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import attrs

from tests.bench import decoding, scale, streams
from tests.bench.chain import chain
from tests.bench.conversation import Conversation
from tests.bench.handover import handover
from tests.bench.measure import ALL_CPUS, ONE_CPU, Bound, Figures, Samples, Table, interleave, load, medians
from tests.bench.noop_agent import AgentLog, claude_wrapper, turn_argv
from tests.bench.subject import Subject, find_zoefs, installed, running
from tests.bench.tmux import tmux
from tests.bench.workshop import PATIENCE, Server, TreeOptions, compiled, mounted, python, temporary

OURS = "zoefs"
WHAT = ("status", "prompt", "wake", "up", "decode", "stream")
LONG = ("scale",)
LINES = 30_000
IMPORTS = "import pyfuse3, trio, attrs, click"


@attrs.frozen
class Plan:
    command: list[str] | None
    rounds: int
    seconds: float
    cycles: int
    transports: tuple[str, ...]
    tree: TreeOptions
    agents: int
    rate: int
    sizes: tuple[int, ...]


# --- status


def opening(client: Path, server: int, file: Path, seconds: float) -> Callable[[], Figures]:
    """One turn: pinned, then free."""
    size = len(file.read_bytes())

    def turn() -> Figures:
        figures: dict[str, float] = {}
        for where, cpus in (("pinned", ONE_CPU), ("free", ALL_CPUS)):
            done = load([str(client), "open", str(file), str(size), f"t={seconds}"], server, cpus)
            figures[f"cpu {where}"] = done.cpu_ns / done.cycles / 1e3
            figures[f"rate {where}"] = done.cycles / done.seconds
            figures[f"requests {where}"] = done.reads / done.cycles
        return figures

    return turn


def status(plan: Plan) -> list[Table]:
    with ExitStack() as stack:
        shop = stack.enter_context(temporary())
        client = compiled("c_client", shop)
        servers: dict[str, Server] = {
            "C": stack.enter_context(mounted([str(compiled("c_server", shop))], "c", plan.tree, shop)),
            "do-nothing": stack.enter_context(mounted(python("noop_server"), "noop", plan.tree, shop)),
        }
        turns = {
            name: opening(client, server.pid, plan.tree.file(server.mount), plan.seconds)
            for name, server in servers.items()
        }
        if plan.command:
            ours: Subject = stack.enter_context(running(plan.command))
            agent = ours.spawn("idle", ["backend=exec", 'argv=["cat"]'])
            turns[OURS] = opening(client, ours.mount_pid(), agent / "status", plan.seconds)
        found = interleave(turns, plan.rounds)
    what = "open+read+close of status"
    return [
        Table(f"{what}, pinned: daemon CPU a cycle, µs", "do-nothing", found["cpu pinned"], {OURS: Bound("<=", 1.3)}),
        Table(f"{what}, free: cycles a second", "C", found["rate free"], {OURS: Bound(">=", 0.5)}),
        Table(f"{what}, pinned: cycles a second", "C", found["rate pinned"]),
        Table(f"{what}, pinned: read(2) calls of the daemon a cycle", "do-nothing", found["requests pinned"]),
    ]


# --- prompt, wake


def many(turn: Callable[[], Figures], cycles: int) -> Callable[[], Figures]:
    return lambda: medians(turn() for _ in range(cycles))


def conversation(stack: ExitStack, shop: Path, command: list[str], transport: str, agent: Path) -> Conversation:
    """An agent of ours with the no-op CLI: `exec`, one process a turn; `stream`, one that speaks claude's protocol."""
    log = AgentLog(shop / f"{transport}.log")
    stream = transport == "stream"
    env = {"ZOEFS_CLAUDE": str(claude_wrapper(agent, log.path, shop))} if stream else None
    ours: Subject = stack.enter_context(running(command, env))
    argv = json.dumps(turn_argv(agent, log.path))
    return Conversation(ours.spawn("bench", ["backend=claude"] if stream else ["backend=exec", f"argv={argv}"]), log)


def talks(plan: Plan) -> Samples:
    with ExitStack() as stack:
        shop = stack.enter_context(temporary())
        agent = compiled("c_agent", shop)
        turns: dict[str, Callable[[], Figures]] = {}
        for transport in plan.transports:
            stream = transport == "stream"
            turns[f"chain {transport}"] = stack.enter_context(chain(agent, stream=stream)).turn
            turns[f"files {transport}"] = stack.enter_context(handover(agent, stream=stream)).turn
            if plan.command:
                turns[f"{OURS} {transport}"] = conversation(stack, shop, plan.command, transport, agent).turn
        turns["tmux"] = stack.enter_context(tmux(agent)).turn
        return interleave({name: many(turn, plan.cycles) for name, turn in turns.items()}, plan.rounds)


@attrs.frozen
class Figure:
    """A figure of the talks, its reference (a chain of the same transport) and its bounds; tmux has no close()."""

    key: str
    title: str
    reference: str
    bound: float
    beside_tmux: bool = True


HANDOVER = Figure("handover", "close() to bytes at the CLI", "files", 5, beside_tmux=False)
PROMPT = Figure("prompt", "prompt to answer", "chain", 4)
WAKE = Figure("wake", "the CLI's line to a woken poll", "chain", 4)


def talk_tables(found: Samples, transports: tuple[str, ...], *figures: Figure) -> list[Table]:
    tables = []
    for transport, figure in itertools.product(transports, figures):
        samples, title = found[figure.key], f"{figure.title}, {transport}, µs"
        reference, ours = f"{figure.reference} {transport}", f"{OURS} {transport}"
        shown = {name: samples[name] for name in (reference, "tmux", ours) if name in samples}
        tables.append(Table(title, reference, shown, {ours: Bound("<=", figure.bound)}))
        if figure.beside_tmux and ours in samples:
            shown = {name: samples[name] for name in ("tmux", ours)}
            tables.append(Table(f"{title}: against tmux", "tmux", shown, {ours: Bound("<=", 1)}))
    return tables


# --- up


def imports() -> Figures:
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORTS], timeout=PATIENCE, check=True)
    return {"ms": (time.monotonic() - start) * 1e3}


def starting(ours: Subject) -> Figures:
    start = time.monotonic()
    try:
        ours.up()
        return {"ms": (time.monotonic() - start) * 1e3}
    finally:
        ours.down()


def up(plan: Plan) -> list[Table]:
    with ExitStack() as stack:
        turns: dict[str, Callable[[], Figures]] = {"imports": imports}
        if plan.command:
            ours = stack.enter_context(installed(plan.command))
            turns[OURS] = lambda: starting(ours)
        found = interleave(turns, plan.rounds)
    return [Table("up to ready, ms", "imports", found["ms"], {OURS: Bound("<=", 4)})]


# --- decode, stream


def decode(plan: Plan) -> list[Table]:
    found = []
    with ExitStack() as stack:
        shop = stack.enter_context(temporary())
        for what, lines in (("lines that are an event each", decoding.work), ("bits of one piece", decoding.bits)):
            turns: dict[str, Callable[[], Figures]] = {
                "bare": lambda lines=lines: decoding.bare(shop, lines(LINES)),  # type: ignore[misc]
                OURS: lambda lines=lines: decoding.ours(shop, lines(LINES)),  # type: ignore[misc]
            }
            samples = interleave(turns, plan.rounds)["rate"]
            found.append(Table(f"{what}: decoded and journaled a second", "bare", samples, {OURS: Bound(">=", 0.3)}))
    return found


def stream(plan: Plan) -> list[Table]:
    if not plan.command:
        return []
    with ExitStack() as stack:
        shop = stack.enter_context(temporary())
        ours, agents = streams.talkers(stack, shop, plan.command, plan.agents)
        turns = {"bound": streams.one_core, OURS: streams.streaming(ours, agents, plan.rate, 10 * plan.seconds)}
        found = interleave(turns, plan.rounds)
    what = f"{plan.agents} agents at {plan.rate} deltas/s"
    titles = {
        **{f"cores {part}": f"{what}: cores of the {part}" for part in ("supervisor", "mount")},
        **{f"grown {part}": f"{what}: KiB that the {part} grew by" for part in ("supervisor", "mount")},
        "late": f"{what}: ms that the last turn ended late",
    }
    return [Table(title, "bound", found[key], {OURS: Bound("<=", 1)}) for key, title in titles.items()]


# --- the program


def tables(what: str, plan: Plan) -> list[Table]:
    """The talks are held once, whichever of their tables are wanted."""
    wanted = WHAT if what == "all" else (what,)
    found = talks(plan) if {"prompt", "wake"} & set(wanted) else {}
    makers: dict[str, Callable[[], list[Table]]] = {
        "status": lambda: status(plan),
        "prompt": lambda: talk_tables(found, plan.transports, HANDOVER, PROMPT),
        "wake": lambda: talk_tables(found, plan.transports, WAKE),
        "up": lambda: up(plan),
        "decode": lambda: decode(plan),
        "stream": lambda: stream(plan),
        "scale": lambda: scale.scale(plan.command, plan.sizes, plan.rounds, 20 * plan.seconds),
    }
    return [table for name in wanted for table in makers[name]()]


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=(*WHAT, *LONG, "all"))
    parser.add_argument("--rounds", type=int, default=6, help="rounds that count (default 6)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn of `status` (default 0.5)")
    parser.add_argument("--cycles", type=int, default=20, help="prompts in a turn of the others (default 20)")
    parser.add_argument("--transport", choices=("exec", "stream", "both"), default="exec")
    parser.add_argument("--agents", type=int, default=100, help="of `stream` (default 100)")
    parser.add_argument("--rate", type=int, default=100, help="deltas a second of each agent of `stream` (default 100)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000, 10000], help="agents of `scale`")
    parser.add_argument("--references", action="store_true", help="without ours")
    parser.add_argument("--tree", nargs="*", default=[], help="key=value of the reference tree (TreeOptions)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every context ends what it began
    plan = Plan(
        command=None if args.references else find_zoefs(),
        rounds=args.rounds,
        seconds=args.seconds,
        cycles=args.cycles,
        transports=("exec", "stream") if args.transport == "both" else (args.transport,),
        tree=TreeOptions.parse(args.tree),
        agents=args.agents,
        rate=args.rate,
        sizes=tuple(args.sizes),
    )
    print(f"{platform.release()}, Python {platform.python_version()}, {len(ALL_CPUS)} processors, {plan.rounds} rounds")
    print(
        f"load {os.getloadavg()[0]:.2f}; {'zoefs: ' + ' '.join(plan.command) if plan.command else 'references only'}\n"
    )
    for table in tables(args.what, plan):
        print(table.render())
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()

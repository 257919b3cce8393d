"""python -m tests.bench.history: what a long history costs at the start of both daemons, beside a short one.

Each turn starts the mount, then the supervisor, on a HOME whose agents have done their work, and waits until all are
loaded. `short`: the same agents with a few events each (the reference); `kept`: a long history and its kept folds;
`nothing kept`: the same without them. RSS is what is held once the program is at rest, peak what it took to get there.
ZOEFS_BENCH_COMMAND names another zoefs to be measured by the same script.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.measure import Bound, Figures, Table, interleave
from tests.bench.subject import find_zoefs
from tests.bench.workshop import PATIENCE, BenchError, detach, is_mounted, temporary
from zoefs.contract.events import Event, utc
from zoefs.contract.home import AgentHome, Home
from zoefs.contract.words import AgentName
from zoefs.disk.layout import ensure

BORN = "0" * 32
SHORT, KEPT, BARE = "short", "kept", "nothing kept"
REST = 0.5
"""Seconds without work after which a program is at rest."""
LONGEST = 1200.0


def one_turn(turn: int) -> list[tuple[str, dict[str, object]]]:
    """About 4 KB of events, as a CLI of some talk leaves them."""
    inc, id = {"inc": turn}, f"in-{1_790_000_000_000_000_000 + turn * 1_000_003:016x}"
    said = [("text", {**inc, "turn": turn, "text": f"step {n}: " + "what it thinks of it. " * 18}) for n in range(6)]
    return [
        ("prompt-given", {**inc, "id": id, "turn": turn, "order": f"{id[3:]}.prompt.{id}", "bytes": 200, "boot": "b"}),
        ("spawned", {**inc, "pid": 1000 + turn, "backend": "exec", "ready": True}),
        *said,
        ("tool", {**inc, "turn": turn, "tool_id": f"t{turn}", "tool": "Bash", "input": {"command": "make test"}}),
        ("tool-result", {**inc, "turn": turn, "tool_id": f"t{turn}", "ok": True, "text": "ok\n" * 150}),
        ("exited", {**inc, "rc": 0, "next": "resting"}),
        ("turn-ended", {**inc, "turn": turn, "id": id, "how": "done", "bytes": 9, "tokens_in": 900, "tokens_out": 90}),
    ]


def journal(size: int) -> bytes:
    """A journal of at least so many bytes, at rest; of the agent born as BORN."""
    lines: list[bytes] = []
    length = 0

    def note(kind: str, fields: dict[str, object]) -> int:
        line = Event(utc(1.79e9 + len(lines)), len(lines) + 1, kind, fields).encode()
        lines.append(line)
        return len(line)

    length += note("created", {"name": "a", "born": BORN}) + note("session", {"id": "s", "how": "chosen"})
    turn = 0
    while not turn or length < size:
        turn += 1
        length += sum(note(kind, fields) for kind, fields in one_turn(turn))
    return b"".join(lines)


def furnish(home: Home, agents: int, size: int) -> None:
    """Lay down the agents of a HOME, each with a journal of this size."""
    ensure(home)
    text = journal(size)
    for n in range(agents):
        agent, born = home.agent(AgentName(f"a{n:03d}")), f"{n + 1:032x}"
        for path in agent.directories:
            path.mkdir(mode=0o700)
        agent.spec.write_text('backend = "exec"\nargv = ["cat"]\n')
        agent.born.write_text(born + "\n")
        agent.session.write_text("s\n")
        agent.lock.touch()
        home.journal(agent.name).write_bytes(text.replace(BORN.encode(), born.encode(), 1))


def agents_of(home: Home) -> list[AgentHome]:
    return [home.agent(AgentName(path.name)) for path in home.agents.iterdir()]


def memory(pid: int, key: str) -> float:
    """VmRSS or VmHWM, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def wait(look: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = LONGEST) -> None:
    end = time.monotonic() + seconds
    while not look():
        if process.poll() is not None or time.monotonic() > end:
            raise BenchError(f"{process.args!r}: not ready within {seconds:g} s, exit {process.returncode}")
        time.sleep(0.005)


def rest(process: subprocess.Popen[bytes]) -> None:
    """Wait until a program works no more."""

    def worked() -> int:
        return sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    before = -1
    while (now := worked()) != before:
        before = now
        time.sleep(REST)


@contextmanager
def started(argv: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *argv], env=env, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def loaded(pid: int, agents: int) -> bool:
    """Whether the supervisor keeps all agents: it holds the journal of each."""
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += "/log/agents/" in os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
    return found >= agents


def starting(command: list[str], home: Home, mount: Path, kept: bool) -> Figures:
    """One start of both daemons, one after the other."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ZOEFS_")}
    env |= {"ZOEFS_HOME": str(home.path), "ZOEFS_MOUNT": str(mount)}
    agents = agents_of(home)
    for agent in agents if not kept else ():
        (agent.path / "fold.json").unlink(missing_ok=True)
    figures: dict[str, float] = {}
    supervisor = [*command[:-1], str(Path(command[-1]).with_name("zoefs-supervisor"))]
    try:
        for part, argv in (("mount", [*command, "mount"]), ("supervisor", [*supervisor, "run"])):
            begin = time.monotonic()
            with started(argv, env) as process:
                if part == "mount":
                    wait(lambda: is_mounted(mount) and (mount / "agents" / "list").exists(), process)
                else:
                    wait(lambda process=process: loaded(process.pid, len(agents)), process)  # type: ignore[misc]
                figures[f"{part} ms"] = (time.monotonic() - begin) * 1e3
                rest(process)
                figures[f"{part} rss"] = memory(process.pid, "VmRSS")
                figures[f"{part} peak"] = memory(process.pid, "VmHWM")
    finally:
        detach(mount)
    return figures


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10, help="agents of a HOME (default 10)")
    parser.add_argument("--mib", type=float, default=1.0, help="of each one's long journal (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count (default 3)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = find_zoefs()
    if command is None:
        raise BenchError("there is no zoefs here to be measured")
    with temporary() as directory:
        mount = directory / "mount"
        mount.mkdir()
        short, long = Home(directory / "short"), Home(directory / "long")
        furnish(short, args.agents, 0)
        furnish(long, args.agents, int(args.mib * (1 << 20)))
        turns: dict[str, Callable[[], Figures]] = {
            SHORT: lambda: starting(command, short, mount, True),
            KEPT: lambda: starting(command, long, mount, True),
            BARE: lambda: starting(command, long, mount, False),
        }
        found = interleave(turns, args.rounds)
    print(f"{platform.release()}, Python {platform.python_version()}; {args.agents} agents of {args.mib:g} MiB\n")
    for part in ("mount", "supervisor"):
        for figure, title, bound in (("ms", "start, ms", 2), ("rss", "RSS, MiB", 2), ("peak", "peak RSS, MiB", 2)):
            print(Table(f"{part}: {title}", SHORT, found[f"{part} {figure}"], {KEPT: Bound("<=", bound)}).render())


if __name__ == "__main__":
    main()

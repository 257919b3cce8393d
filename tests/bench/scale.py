"""What many agents cost, beside a server that does nothing, a plain directory, and few agents.

`looking` lists agents/ and reads its table at each size; `holding` is what both daemons hold and do at rest, by size;
`starting` is `zoefs up` on 1,000 agents with a GB of journals, with the kept folds and without, beside an empty HOME.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench.measure import Bound, Figures, Samples, Table, cpu_ns, cpu_spent, interleave
from tests.bench.subject import Zoefs
from tests.bench.workshop import PATIENCE, Server, TreeOptions, mounted, python, temporary
from tests.crowd import Past, lay, past
from zoefs.contract.home import Home
from zoefs.disk.layout import ensure

OURS, NOOP, PLAIN, BYTES = "zoefs", "do-nothing", "tmpfs", "the bytes"
LOOKS = ("ls", "list", "find")
LIVE, STOPPED = 100, 900
LONGEST = 900.0
MEMORY = Path("/dev/shm")


def furnish(home: Home, agents: int, made: Past) -> None:
    ensure(home)
    for n in range(agents):
        lay(home, f"a{n:05d}", made)


def until(look: Callable[[], bool], seconds: float = LONGEST) -> None:
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.01)


def worked(pid: int) -> float:
    """Seconds on a processor, of ended threads too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rest(pids: Sequence[int]) -> None:
    """Wait until none of them works more than a little."""
    before = -1.0
    while (now := sum(map(worked, pids))) - before > 0.02:
        before = now
        time.sleep(1.0)


def table_is_whole(mount: Path, agents: int) -> bool:
    return len((mount / "agents/list").read_bytes().splitlines()) == agents + 1


@contextlib.contextmanager
def standing(command: list[str], where: Path, agents: int) -> Iterator[Zoefs]:
    """Both daemons on a HOME with so many agents, all of them read."""
    mount = where / "mount"
    mount.mkdir(parents=True)
    ours = Zoefs(command, where / "home", mount)
    furnish(Home(ours.home), agents, past(3))
    try:
        ours.up()
        until(lambda: table_is_whole(mount, agents))
        yield ours
    finally:
        ours.down()


# --- looking


def looks(directory: Path, table: Path) -> dict[str, list[str]]:
    reader = [sys.executable, "-c", f"import sys; open({str(table)!r}, 'rb').read()"]
    return {"ls": ["ls", "-l", f"{directory}/"], "list": reader, "find": ["find", str(directory)]}


def looking(words: list[str], server: int | None) -> Figures:
    """One turn: the wall time of the command, and what the server worked for it, in ms."""
    before = cpu_ns(server) if server else {}
    start = time.monotonic()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True, timeout=LONGEST)
    wall = time.monotonic() - start
    return {"wall": wall * 1e3} | ({"cpu": cpu_spent(before, cpu_ns(server)) / 1e6} if server else {})


def plain(where: Path, agents: int) -> Path:
    """A directory like agents/ in memory: as many directories of 13 files, and a file like the table."""
    for n in range(agents):
        (where / f"a{n:05d}").mkdir()
        for file in range(13):
            (where / f"a{n:05d}" / f"f{file}").touch()
    (where / "list").write_bytes(b"x" * 90 * (agents + 1))
    return where


def at_size(command: list[str] | None, agents: int, rounds: int) -> dict[str, Samples]:
    """Each look at one size, ours and its references in turn."""
    with ExitStack() as stack:
        shop = stack.enter_context(temporary())
        memory = plain(stack.enter_context(temporary(MEMORY if MEMORY.is_dir() else None)), agents)
        tree = TreeOptions(dirs=agents)
        noop: Server = stack.enter_context(mounted(python("noop_server"), "noop", tree, shop))
        wanted: dict[str, dict[str, Callable[[], Figures]]] = {what: {} for what in LOOKS}

        def add(name: str, directory: Path, table: Path, server: int | None) -> None:
            for what, words in looks(directory, table).items():
                wanted[what][name] = lambda words=words: looking(words, server)  # type: ignore[misc]

        add(PLAIN, memory, memory / "list", None)
        add(NOOP, noop.mount / "agents", memory / "list", noop.pid)
        if command:
            ours = stack.enter_context(standing(command, shop / "ours", agents))
            directory = ours.mount / "agents"
            rest([ours.mount_pid(), ours.supervisor_pid()])
            add(OURS, directory, directory / "list", ours.mount_pid())
        wanted["list"][BYTES] = wanted["list"].pop(NOOP)
        return {what: interleave(turns, rounds) for what, turns in wanted.items()}


def look_tables(found: dict[int, dict[str, Samples]]) -> list[Table]:
    tables = []
    titles = {"ls": "ls -l agents/", "list": "a Python that reads agents/list", "find": "find agents/"}
    for what in LOOKS:
        for agents, samples in found.items():
            reference = BYTES if what == "list" else NOOP
            tables.append(Table(f"{titles[what]}, {agents} agents: wall, ms", reference, samples[what]["wall"]))
        first = min(found, key=lambda n: abs(n - 100))
        by_size = {
            str(agents): [value / agents * 1e3 for value in samples[what]["cpu"][OURS]]
            for agents, samples in found.items()
            if OURS in samples[what]["cpu"]
        }
        bounds = {name: Bound("<=", 1.3) for name in by_size if int(name) > first}
        tables += [Table(f"{titles[what]}: daemon CPU, µs an agent", str(first), by_size, bounds)] if by_size else []
        if what != "list":
            for agents, samples in found.items():
                tables.append(Table(f"{titles[what]}, {agents} agents: daemon CPU, ms", NOOP, samples[what]["cpu"]))
    return tables


# --- holding


def held(pid: int) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    sizes = {key.lower(): int(status[key].split()[0]) for key in ("Rss", "Pss")}
    return {**sizes, "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def holding(command: list[str], sizes: Sequence[int], seconds: float) -> list[Table]:
    """Both daemons at each size, at rest: memory, descriptors, and the processor time of so many seconds."""
    found: dict[str, dict[str, list[float]]] = {}
    for agents in (0, *sizes):
        with temporary() as shop, standing(command, shop / "ours", agents) as ours:
            pids = {"mount": ours.mount_pid(), "supervisor": ours.supervisor_pid()}
            rest(list(pids.values()))
            before = {part: worked(pid) for part, pid in pids.items()}
            time.sleep(seconds)
            for part, pid in pids.items():
                figures = held(pid) | {"idle": (worked(pid) - before[part]) / seconds * 100}
                for figure, value in figures.items():
                    found.setdefault(f"{part} {figure}", {})[str(agents)] = [value]
    tables = []
    for part in ("mount", "supervisor"):
        for figure in ("rss", "pss"):
            by_size = found[f"{part} {figure}"]
            tables.append(Table(f"{part}: {figure.upper()}, KiB", "0", by_size))
        base = found[f"{part} rss"]["0"][0]
        slopes = {str(n): [(found[f"{part} rss"][str(n)][0] - base) / n] for n in sizes}
        tables.append(Table(f"{part}: RSS an agent, KiB", str(max(sizes)), slopes))
        tables.append(Table(f"{part}: open descriptors", "0", found[f"{part} descriptors"]))
        idle = {name: [max(value[0], 0.01)] for name, value in found[f"{part} idle"].items()}
        tables.append(Table(f"{part}: % of a processor at rest, over {seconds:g} s", str(max(sizes)), idle, digits=2))
    return tables


# --- starting


def crowd(home: Home, kept: bool) -> None:
    """100 agents with a long past, in segments, and 900 stopped ones: about a GB of journals."""
    ensure(home)
    long, short = past(100, 95_000, stopped=False), past(10, 6_000)
    for n in range(LIVE):
        lay(home, f"live{n:03d}", long, kept=kept)
    for n in range(STOPPED):
        lay(home, f"old{n:03d}", short, kept=kept)


def starting(ours: Zoefs, agents: int, kept: bool) -> Figures:
    """`zoefs up` until it returns; until one agent's status is told; and until the table is whole."""
    home = Home(ours.home)
    for name in os.listdir(home.agents) if not kept else ():
        (home.agents / name / "fold.json").unlink(missing_ok=True)
    start = time.monotonic()
    try:
        ours.up()
        ready = time.monotonic() - start
        if agents:
            (ours.mount / "agents" / "live042" / "status").read_bytes()
        one = time.monotonic() - start
        until(lambda: table_is_whole(ours.mount, agents))
        whole = time.monotonic() - start
        rest([ours.mount_pid(), ours.supervisor_pid()])
        return {"up": ready * 1e3, "one": one * 1e3, "table": whole * 1e3}
    finally:
        ours.down()


def start_tables(command: list[str], rounds: int) -> list[Table]:
    with temporary() as shop:
        turns: dict[str, Callable[[], Figures]] = {}
        for name, agents, kept in (("empty", 0, True), ("kept", LIVE + STOPPED, True), ("bare", LIVE + STOPPED, False)):
            mount = shop / f"mount-{name}"
            mount.mkdir()
            ours = Zoefs(command, shop / name, mount)
            if agents:
                crowd(Home(ours.home), kept)
            turns[name] = lambda ours=ours, agents=agents, kept=kept: starting(ours, agents, kept)  # type: ignore[misc]
        found = interleave(turns, rounds)
    titles = {"up": "zoefs up", "one": "until one agent's status is told", "table": "until agents/list is whole"}
    return [
        Table(f"{title}: 1,000 agents and 1 GB of journals, ms", "empty", found[key]) for key, title in titles.items()
    ]


def scale(command: list[str] | None, sizes: Sequence[int], rounds: int, seconds: float) -> list[Table]:
    """All tables. `seconds`: how long the daemons are watched at rest."""
    tables = look_tables({agents: at_size(command, agents, rounds) for agents in sizes})
    if command:
        tables += holding(command, sizes, max(seconds, PATIENCE))
        tables += start_tables(command, max(1, rounds // 2))
    return tables

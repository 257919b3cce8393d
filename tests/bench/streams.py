"""Many agents that stream at once: what each daemon takes of a processor, and what it grows by."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.bench.measure import Figures, cpu_ns, cpu_spent
from tests.bench.subject import Subject, running
from tests.bench.workshop import PATIENCE, BenchError, compiled

DELTA_BYTES = 40


def rss_kib(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise BenchError(f"process {pid} is gone")


def talkers(stack: ExitStack, shop: Path, command: list[str], count: int) -> tuple[Subject, list[Path]]:
    """A tree with `count` agents that are up and answer."""
    talker = compiled("c_talker", shop)
    ours: Subject = stack.enter_context(running(command, {"ZOEFS_CLAUDE": str(talker)}))
    agents = []
    for n in range(count):
        agent = ours.spawn(f"t{n}", ["backend=claude"])
        (agent / "in").write_text("1 0 1")
        agents.append(agent)
    for agent in agents:
        settle(agent)
    return ours, agents


def settle(agent: Path, seconds: float = 0.0) -> None:
    """Until the agent awaits a prompt."""
    end = time.monotonic() + seconds + PATIENCE
    while (word := (agent / "wait").read_text().strip()) != "await":
        if word or time.monotonic() > end:
            raise BenchError(f"{agent.name} is {word or 'not done'}: {(agent / 'error').read_text()}")


def streaming(ours: Subject, agents: list[Path], rate: int, seconds: float) -> Callable[[], Figures]:
    """One turn: all stream `rate` deltas a second for so long; cores of each daemon, and KiB that they grew by."""
    pids = {"mount": ours.mount_pid(), "supervisor": ours.supervisor_pid()}
    deltas = int(rate * seconds)

    def turn() -> Figures:
        before = {part: (cpu_ns(pid), rss_kib(pid)) for part, pid in pids.items()}
        start = time.monotonic()
        for agent in agents:
            (agent / "in").write_text(f"{deltas} {1_000_000 // rate} {DELTA_BYTES}")
        for agent in agents:
            settle(agent, seconds)
        spent = time.monotonic() - start
        figures: dict[str, float] = {"late": (spent - seconds) * 1e3}
        for part, pid in pids.items():
            cpu, rss = before[part]
            figures[f"cores {part}"] = cpu_spent(cpu, cpu_ns(pid)) / 1e9 / spent
            figures[f"grown {part}"] = rss_kib(pid) - rss
        return figures

    return turn


def one_core() -> Figures:
    """The bounds as a contestant: one processor; 1 MiB grown; a second late."""
    parts = ("mount", "supervisor")
    return {"late": 1000.0} | {f"cores {part}": 1.0 for part in parts} | {f"grown {part}": 1024.0 for part in parts}

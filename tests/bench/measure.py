"""How the benches measure: interleaved rounds in random order, medians, ranges, ratios; nothing is asserted.

A contestant is a name and a function that takes one turn and returns named figures. All contestants exist at once and
are idle while another has its turn. A ratio is the ratio of two medians of one run; the spread beside it is that of
the ratios round by round. A bound is printed with the ratio and never enforced.
"""

import os
import random
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import attrs

Figures: TypeAlias = Mapping[str, float]
Samples: TypeAlias = dict[str, dict[str, list[float]]]  # figure -> contestant -> one value a round


def interleave(contestants: Mapping[str, Callable[[], Figures]], rounds: int) -> Samples:
    """Every contestant once a round, each round in a fresh order; the first round only warms up and is dropped."""
    samples: Samples = {}
    for at in range(rounds + 1):
        for name in random.sample(sorted(contestants), len(contestants)):
            figures = contestants[name]()
            for figure, value in figures.items() if at else ():
                samples.setdefault(figure, {known: [] for known in contestants})[name].append(value)
    return {figure: {name: values for name, values in by_name.items() if values} for figure, by_name in samples.items()}


def medians(turns: Iterable[Figures]) -> dict[str, float]:
    """One turn's figures from its many cycles."""
    columns: dict[str, list[float]] = {}
    for figures in turns:
        for name, value in figures.items():
            columns.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in columns.items()}


# --- processors and processes


ALL_CPUS = frozenset(os.sched_getaffinity(0))
ONE_CPU = frozenset({max(ALL_CPUS)})


def tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def pin(pid: int, cpus: frozenset[int]) -> None:
    """What `taskset -a -p` does: every thread of a running process."""
    for task in tasks(pid):
        with suppress(ProcessLookupError):  # a worker thread that has just ended
            os.sched_setaffinity(int(task.name), cpus)


def pinned(argv: list[str], cpus: frozenset[int]) -> list[str]:
    return ["taskset", "-c", ",".join(map(str, sorted(cpus))), *argv]


def cpu_ns(pid: int) -> dict[str, int]:
    """Time on a processor of each thread, in ns."""
    spent = {}
    for task in tasks(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            spent[task.name] = int((task / "schedstat").read_text().split()[0])
    return spent


def cpu_spent(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """In ns; a thread that ended in between is left out, one that began counts whole."""
    return sum(value - before.get(task, 0) for task, value in after.items())


def reads(pid: int) -> int:
    """read(2) calls so far: for a FUSE server one a request, plus its other reading."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("syscr:")).split()[1])


@attrs.frozen
class Load:
    cycles: int
    seconds: float
    cpu_ns: int
    reads: int


def load(client: list[str], server: int, cpus: frozenset[int]) -> Load:
    """Run the C client against a server, both on these processors; a client that fails fails the bench."""
    pin(server, cpus)
    try:
        before, read_before = cpu_ns(server), reads(server)
        run = subprocess.run(pinned(client, cpus), stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        spent, read = cpu_spent(before, cpu_ns(server)), reads(server) - read_before
    finally:
        pin(server, ALL_CPUS)
    cycles, seconds = run.stdout.split()
    return Load(int(cycles), float(seconds), spent, read)


# --- tables


@attrs.frozen
class Bound:
    word: str  # "<=" or ">="
    value: float

    def holds(self, ratio: float) -> bool:
        return ratio <= self.value if self.word == "<=" else ratio >= self.value


@attrs.frozen
class Table:
    title: str
    reference: str
    samples: Mapping[str, list[float]]
    bounds: Mapping[str, Bound] = attrs.field(factory=dict)
    digits: int = 1

    def render(self) -> str:
        rows = [("", "median", "range", f"/ {self.reference}", "by round", "bound", "")]
        base = self.samples[self.reference]
        for name, values in self.samples.items():
            ratio = statistics.median(values) / statistics.median(base)
            by_round = [value / other for value, other in zip(values, base, strict=True)]
            bound = self.bounds.get(name)
            rows.append(
                (
                    name,
                    f"{statistics.median(values):.{self.digits}f}",
                    f"{min(values):.{self.digits}f} … {max(values):.{self.digits}f}",
                    f"{ratio:.2f}",
                    f"{min(by_round):.2f} … {max(by_round):.2f}",
                    f"{bound.word} {bound.value:g}" if bound else "",
                    ("met" if bound.holds(ratio) else "MISSED") if bound else "",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(cells)).rstrip()
            for cells in (zip(row, widths, strict=True) for row in rows)
        ]
        return "\n".join([self.title, *("  " + line for line in lines), ""])

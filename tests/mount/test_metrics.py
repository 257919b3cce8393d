"""`metrics` is Prometheus' text format, and its numbers are those of what happened."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from tests.living import Tree, wait_for
from tests.mount.clients import ORDERS, ask, fresh, put, refused
from zoefs.contract.words import Status
from zoefs.mount.metrics import FAMILIES

_SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z]+)="([A-Za-z0-9_]+)"\})? +([0-9.e+-]+)')


def metrics(tree: Tree) -> dict[tuple[str, str], float]:
    """Every sample, by name and the label's value; each family is announced once, before its samples."""
    found: dict[tuple[str, str], float] = {}
    announced: list[str] = []
    text = (tree.mount / "metrics").read_text()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            announced.append(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line.split()[2:] == [announced[-1], FAMILIES[announced[-1]].kind]
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert (sample[1], sample[2] or "") == (announced[-1], FAMILIES[announced[-1]].label)
            assert (sample[1], sample[3] or "") not in found
            found[sample[1], sample[3] or ""] = float(sample[4])
    assert announced == list(FAMILIES)
    return found


def until(tree: Tree, name: str, label: str, number: float) -> None:
    """The text is made anew once a second."""
    wait_for(lambda: metrics(tree).get((name, label)) == number, f"{name} {label} {number}")


def test_turns_statuses_and_requests_are_counted(tree: Tree) -> None:
    first = metrics(tree)
    assert first["zoefs_agents", "await"] == first["zoefs_turns_total", "done"] == 0
    agent = fresh(tree, ORDERS)
    for n in range(3):
        ask(tree, agent, b"t%d done 0\n" % n)
    put(agent / "in", b"t fail 0\n")
    assert tree.settle(agent.name) == "await"
    until(tree, "zoefs_turns_total", "done", 3)
    found = metrics(tree)
    assert found["zoefs_turns_total", "failed"] == 1
    assert [found["zoefs_agents", status] for status in Status] == [float(status == "await") for status in Status]
    assert found["zoefs_queued_prompts", ""] == found["zoefs_restarts_total", ""] == 0
    assert found["zoefs_operations_total", "mkdir"] == 1
    assert found["zoefs_operations_total", "release"] > first.get(("zoefs_operations_total", "release"), 0)
    assert 0 <= found["zoefs_supervisor_heartbeat_age_seconds", ""] < 60
    until(tree, "zoefs_event_lag_seconds", "", 0)


def test_refusals_are_counted_and_totals_never_shrink(tree: Tree, base: Path) -> None:
    agent = fresh(tree)
    ask(tree, agent, b"x")
    with refused(errno.EINVAL):
        put(agent / "ctl", b"no-such-verb\n")
    before = metrics(tree)
    with refused(errno.EINVAL):
        put(agent / "ctl", b"no-such-verb\n")
    until(tree, "zoefs_refusals_total", "EINVAL", before.get(("zoefs_refusals_total", "EINVAL"), 0) + 1)
    until(tree, "zoefs_turns_total", "done", 1)
    put(agent / "ctl", b"stop\n")
    assert tree.settle(agent.name) == "stopped"
    agent.rmdir()
    until(tree, "zoefs_agents", "stopped", 0)
    assert metrics(tree)["zoefs_turns_total", "done"] == 1


def test_it_is_to_be_read_whole(tree: Tree) -> None:
    path = tree.mount / "metrics"
    with refused(errno.EACCES):
        path.write_text("x")
    wait_for(lambda: path.stat().st_size == len(path.read_bytes()), "its size is that of its text")


def test_looking_changes_its_numbers_and_not_its_length(tree: Tree) -> None:
    """Else who copies the tree finds it shorter or longer than stat(2) said."""
    path = tree.mount / "metrics"
    size, first = path.stat().st_size, metrics(tree)["zoefs_operations_total", "read"]
    while metrics(tree)["zoefs_operations_total", "read"] < first + 2_000:
        tree.shell("for n in $(seq 200); do cat list list list list list; done > /dev/null")
    assert path.stat().st_size == len(path.read_bytes()) == size

"""Who a process is: marks, zombies, environments."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zoefs.disk.process import (
    Mark,
    began,
    boot_id,
    environment,
    lives,
    mark_of,
    start_time,
    stat_fields,
)

NOBODY = 2**22 + 1
"""Above the kernel's greatest pid."""


def test_we_live() -> None:
    mark = mark_of(os.getpid())
    assert mark.pid == os.getpid()
    assert mark.start > 0
    assert mark.boot == boot_id() != ""
    assert lives(mark)
    assert stat_fields(os.getpid())[1] == str(os.getppid())


def test_when_it_began() -> None:
    before = time.time()
    with subprocess.Popen(["sleep", "60"]) as process:
        mark = mark_of(process.pid)
        process.kill()
    assert before - 2 < began(mark) < time.time() + 2


@pytest.mark.parametrize("pid", [0, -1, NOBODY])
def test_who_is_not_there_does_not_live(pid: int) -> None:
    assert (stat_fields(pid), start_time(pid), environment(pid)) == ([], 0, {})
    assert not lives(mark_of(pid))
    assert not lives(Mark(pid, 0))
    assert not lives(Mark(pid, 1))


def test_another_process_of_the_same_pid_is_another() -> None:
    mine = mark_of(os.getpid())
    for start in (mine.start + 1, mine.start - 1, 0, -1):
        assert not lives(Mark(mine.pid, start, mine.boot))


def test_a_mark_of_another_boot_is_another() -> None:
    mine = mark_of(os.getpid())
    assert not lives(Mark(mine.pid, mine.start, "00000000-0000-0000-0000-000000000000"))


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen(["sleep", "60"])
    mark = mark_of(child.pid)
    assert lives(mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert stat_fields(child.pid)[0] == "Z"
    assert not lives(mark)
    assert start_time(child.pid) == 0
    assert environment(child.pid) == {}
    child.wait(5)
    assert not lives(mark)
    assert stat_fields(child.pid) == []


def test_a_name_cannot_shift_the_fields(tmp_path: Path) -> None:
    """comm stands in parentheses and may hold spaces and parentheses itself."""
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "60"])
    try:
        assert stat_fields(child.pid)[1] == str(os.getpid())
        assert lives(mark_of(child.pid))
    finally:
        child.kill()
        child.wait(5)


def test_the_environment_is_read_as_it_was_given(started: Callable[[str, dict[str, str]], int]) -> None:
    pid = started("echo $$; exec sleep 60", {"A": "b=c", "EMPTY": "", "L": "x\ny"})
    env = environment(pid)
    assert (env["A"], env["EMPTY"], env["L"]) == ("b=c", "", "x\ny")

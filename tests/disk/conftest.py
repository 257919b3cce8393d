"""Fixtures of the disk's tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from zoefs.disk.process import Mark, lives, mark_of


@pytest.fixture
def started() -> Iterator[Callable[[str, dict[str, str]], int]]:
    """Run a shell text under an environment; its first line of output is the pid wanted. All are killed at the end."""
    shells: list[subprocess.Popen[str]] = []
    marks: list[Mark] = []

    def start(text: str, env: dict[str, str]) -> int:
        shell = subprocess.Popen(
            ["sh", "-c", text], stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], **env}
        )
        shells.append(shell)
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        marks.append(mark_of(pid))
        return pid

    yield start
    for mark in marks:
        if lives(mark):
            os.kill(mark.pid, signal.SIGKILL)
    for shell in shells:
        shell.kill()
        shell.communicate(timeout=5)

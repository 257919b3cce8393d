"""Completion as a shell asks for it: names of agents, quickly, and silence where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoefs.cli import complete
from zoefs.cli.complete import SHELLS, VARIABLE
from zoefs.cli.main import cli

BY_NAME = [["send"], ["wait"], ["show"], ["follow"], ["stop"], ["restart"], ["interrupt"], ["retire"], ["fork"]]


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    for name in ("ann", "anton", "berta"):
        (tmp_path / "m" / "agents" / name).mkdir(parents=True)
    (tmp_path / "m" / "agents" / "list").touch()
    return tmp_path / "m"


def asked(mount: Path, words: list[str], incomplete: str) -> list[str]:
    """What a bash that completes is told; nothing may be said beside it."""
    line = ["zoefs", *words, incomplete]
    env = {"PATH": os.environ["PATH"], "ZOEFS_MOUNT": str(mount), VARIABLE: "bash_complete"}
    env |= {"COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "zoefs.cli.main"], env=env, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [word.removeprefix("plain,") for word in done.stdout.split()]


@pytest.mark.parametrize("words", BY_NAME)
def test_every_command_about_an_agent_completes_its_name(mount: Path, words: list[str]) -> None:
    assert asked(mount, words, "an") == ["ann", "anton"]


def test_names_that_stand_there_and_names_to_be_made(mount: Path) -> None:
    assert asked(mount, ["wait", "ann"], "") == ["anton", "berta"]
    assert asked(mount, ["wait", "--any", "ann", "berta"], "a") == ["anton"]
    assert asked(mount, ["spawn"], "an") == []
    assert asked(mount, ["fork", "ann"], "b") == []


def test_the_mount_of_the_line_is_meant(mount: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "agents" / "anna").mkdir(parents=True)
    assert asked(mount, ["show", "--mount", str(other)], "an") == ["anna"]


def test_without_a_mount_there_are_none(tmp_path: Path) -> None:
    assert asked(tmp_path / "none", ["show"], "") == []


def test_a_mount_that_hangs_is_not_waited_for(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: time.sleep(5))
    start = time.monotonic()
    command = cli.commands["show"]
    context = command.make_context("show", ["--mount", str(mount)], resilient_parsing=True)
    assert complete.agent_names(context, command.params[0], "") == []
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_to_be_sourced(shell: str) -> None:
    line = [sys.executable, "-m", "zoefs.cli.main", "completion", shell]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert f"{VARIABLE}={shell}_complete" in done.stdout
    assert done.stderr == ""


def test_bash_takes_it(mount: Path, tmp_path: Path) -> None:
    """In a real shell, as the user has it."""
    program = tmp_path / "zoefs"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m zoefs.cli.main "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(zoefs completion bash)"
    COMP_WORDS=(zoefs show be) COMP_CWORD=2
    _zoefs_completion zoefs; echo "${COMPREPLY[@]}"
    """
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ZOEFS_MOUNT": str(mount)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "berta\n", done.stderr

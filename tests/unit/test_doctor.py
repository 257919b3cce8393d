"""`zoefs doctor` on made-up places: each finding, and the exit code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zoefs.cli import doctor
from zoefs.cli.doctor import CHECKS, Place, State
from zoefs.cli.main import cli
from zoefs.contract.backends import BACKENDS
from zoefs.contract.home import Home
from zoefs.disk.layout import ensure
from zoefs.disk.process import mark_of

TESTED = BACKENDS["claude"].versions[-1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home = Home(tmp_path / "home")
    ensure(home)
    return Place(home, tmp_path / "mnt")


def run(place: Place, *words: str, **env: str) -> Result:
    named = {"ZOEFS_HOME": str(place.home.path), "ZOEFS_MOUNT": str(place.mount), **env}
    return CliRunner(env=named).invoke(cli, ["doctor", *words])


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_every_check_is_a_line(place: Place) -> None:
    done = run(place)
    lines = done.stdout.splitlines()
    assert [re.sub(r"^(ok   |warn |fail ) ", "", line).partition(": ")[0] for line in lines] == list(CHECKS)
    assert all(len(line) > len("ok    x: ") for line in lines)
    assert done.exit_code == (1 if any(line.startswith("fail") for line in lines) else 0)


def test_json_says_the_same(place: Place) -> None:
    found = json.loads(run(place, "--json").stdout)
    assert [one["check"] for one in found] == list(CHECKS)
    assert {one["state"] for one in found} <= set(State)


def test_it_changes_nothing(place: Place) -> None:
    def everything() -> list[tuple[str, int]]:
        return sorted((str(path), path.lstat().st_mtime_ns) for path in place.home.path.parent.rglob("*"))

    before = everything()
    run(place)
    assert everything() == before


def test_a_failure_is_exit_1_and_one_that_breaks_is_a_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(place: Place) -> tuple[State, str]:
        raise PermissionError(13, "no", "/some/file")

    monkeypatch.setattr(doctor, "CHECKS", {"it": lambda place: (State.OK, "well")})
    assert (run(place).exit_code, run(place).stdout) == (0, "ok    it: well\n")
    monkeypatch.setattr(doctor, "CHECKS", {"it": breaks})
    assert (run(place).exit_code, run(place).stdout) == (1, "fail  it: EACCES: /some/file\n")


def test_home(place: Place) -> None:
    assert doctor.home(place)[0] is State.OK
    place.home.path.chmod(0o755)
    assert doctor.home(place) == (
        State.WARN,
        f"{place.home.path} is open to others (0755); chmod 700 {place.home.path}",
    )
    place.home.version.write_text("9\n")
    assert doctor.home(place)[0] is State.FAIL
    assert doctor.home(Place(Home(place.home.path / "none"), place.mount))[0] is State.WARN


def test_mount_point(place: Place) -> None:
    assert doctor.mount_point(place)[0] is State.OK
    place.mount.mkdir()
    assert doctor.mount_point(place)[0] is State.OK
    (place.mount / "x").touch()
    assert doctor.mount_point(place)[0] is State.FAIL
    assert doctor.mount_point(Place(place.home, place.mount / "x"))[0] is State.FAIL
    assert doctor.mount_point(Place(place.home, Path("/proc")))[0] is State.OK


def test_daemons_that_do_not_run(place: Place) -> None:
    assert doctor.mount_daemon(place)[0] is doctor.supervisor(place)[0] is State.WARN


@pytest.mark.parametrize(
    ("words", "age", "state"), [("0.1.0\n", 0, "ok"), ("", 0, "warn"), ("9.9\n", 0, "warn"), ("0.1.0\n", 60, "fail")]
)
def test_a_supervisor_and_its_version(place: Place, words: str, age: int, state: str) -> None:
    mark = mark_of(os.getpid())
    lock = place.home.supervisor_lock
    lock.write_text(f"{mark.pid}\n{mark.start}\n{mark.boot}\n{words}")
    now = lock.stat().st_mtime
    os.utime(lock, (now - age, now - age))
    assert doctor.supervisor(place)[0] == state


@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        (f"echo '{TESTED} (Claude Code)'", "ok", "tested"),
        ("echo 99.9.9", "warn", "not a version that the tests run with"),
        ("echo nothing", "fail", "no version"),
        ("exit 3", "fail", "exit 3"),
        ("exec sleep 60", "fail", "does not end"),
    ],
)
def test_a_cli(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, state: str, word: str) -> None:
    monkeypatch.setattr(doctor, "PATIENCE_CLI", 1.0)
    monkeypatch.setenv("ZOEFS_CLAUDE", str(program(tmp_path / "claude", text)))
    found, told = doctor.cli_of("claude")(place)
    assert (found, word in told) == (state, True), told


def test_a_cli_that_is_not_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOEFS_CODEX", "/no/such/program")
    assert doctor.cli_of("codex")(place)[0] is State.WARN


def test_the_rest_says_something_of_this_machine(place: Place) -> None:
    for check in (doctor.python, doctor.packages, doctor.descriptors, doctor.inotify, doctor.cgroup, doctor.stale):
        state, text = check(place)
        assert state in State
        assert text


@pytest.mark.parametrize(("free", "state"), [(1 << 40, "ok"), (100 << 20, "warn"), (1 << 20, "fail")])
def test_disk(place: Place, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    real = os.statvfs(place.home.path)

    class Found:
        f_frsize, f_bavail, f_files, f_favail = 4096, free // 4096, real.f_files, 1 << 20

    monkeypatch.setattr(os, "statvfs", lambda path: Found)
    assert doctor.disk(place)[0] == state

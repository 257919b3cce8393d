"""`up`, `down` and what lies between, from outside: the programs are started as a person starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zoefs.cli.daemons import is_mounted
from zoefs.contract.home import Home
from zoefs.disk.lock import holder
from zoefs.disk.process import environment, lives

DEADLINE = 60.0


class Place:
    """A HOME and a MOUNT of its own, and `zoefs` called on them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = Home(path / "home")
        self.mount = path / "mount"
        ours = {"ZOEFS_HOME": str(self.home.path), "ZOEFS_MOUNT": str(self.mount)}
        root = str(Path(__file__).parents[2])
        self.env = {**os.environ, **ours, "PYTHONPATH": root}

    def start(self, *words: str, pass_fds: tuple[int, ...] = (), cwd: Path | None = None) -> subprocess.Popen[str]:
        argv = [sys.executable, "-W", "error", "-m", "zoefs.cli.main", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            pass_fds=pass_fds,
            cwd=cwd,
        )

    def run(self, *words: str, cwd: Path | None = None) -> tuple[int, str, str]:
        process = self.start(*words, cwd=cwd)
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out, err

    def pids(self) -> tuple[int, int]:
        """The pids of mount daemon and supervisor; 0 for one that does not run."""
        held = holder(self.home.mount_lock), holder(self.home.supervisor_lock)
        return held[0].mark.pid if held[0].alive else 0, held[1].mark.pid if held[1].alive else 0

    def kill(self, which: int) -> None:
        held = holder((self.home.mount_lock, self.home.supervisor_lock)[which])
        assert held.alive
        os.kill(held.mark.pid, signal.SIGKILL)
        eventually(lambda: not lives(held.mark))

    def health(self) -> str:
        return (self.mount / "health").read_text()


def eventually(look: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not look():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    code, out, err = place.run("down")
    assert (code, err) == (0, ""), out
    assert place.pids() == (0, 0)
    assert not is_mounted(place.mount)


def test_up_and_down_twice_each(place: Place) -> None:
    code, out, err = place.run("up")
    assert (code, err) == (0, "")
    mount, supervisor = place.pids()
    assert out == f"mount ready at {place.mount} (pid {mount})\nsupervisor ready (pid {supervisor})\n"
    assert "supervisor\tok" in place.health().replace(" ", "\t")
    code, out, err = place.run("up")
    assert (code, err) == (0, "")
    assert out.count("runs already") == 2
    assert place.pids() == (mount, supervisor)
    code, out, err = place.run("down")
    assert (code, err) == (0, "")
    assert out.count("ended") == 2
    assert not is_mounted(place.mount)
    assert os.listdir(place.mount) == []
    assert place.run("down") == (0, "nothing was running\n", "")


def test_one_home_is_mounted_once(place: Place) -> None:
    assert place.run("up")[0] == 0
    code, _, err = place.run("up", "--mount", str(place.path / "other"))
    assert code == 4
    assert f"is mounted at {place.mount} already" in err
    code, _, err = place.run("mount", "--mount", str(place.path / "other"))
    assert code == 4
    assert len(err.splitlines()) == 1


def test_two_at_once_start_one_of_each(place: Place) -> None:
    processes = [place.start("up") for _ in range(4)]
    for process in processes:
        _, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, err) == (0, "")
    assert 0 not in place.pids()


def test_a_dead_mount_is_found_cleared_and_served_anew(place: Place) -> None:
    assert place.run("up")[0] == 0
    _, supervisor = place.pids()
    place.kill(0)
    eventually(lambda: place.run("ls")[0] == 6)
    code, out, err = place.run("up")
    assert (code, err) == (0, "")
    assert "supervisor runs already" in out
    assert place.pids()[1] == supervisor
    assert place.health()


def test_a_stale_mount_is_taken_away_by_down(place: Place) -> None:
    assert place.run("up")[0] == 0
    place.kill(0)
    code, _, err = place.run("down")
    assert (code, err) == (0, "")
    assert not is_mounted(place.mount)


def test_a_dead_supervisor_is_started_again(place: Place) -> None:
    assert place.run("up")[0] == 0
    mount, _ = place.pids()
    place.kill(1)
    eventually(lambda: "absent" in place.health())
    assert place.run("up")[0] == 0
    assert place.pids()[0] == mount
    assert place.pids()[1]


def test_without_a_supervisor_prompts_queue_and_waiting_says_so(place: Place) -> None:
    assert place.run("up", "--without", "supervisor,conductor,bonfire")[0] == 0
    assert place.pids()[1] == 0
    assert place.run("spawn", "r1", "--backend", "exec", "--set", 'argv=["cat"]')[0] == 0
    code, out, _ = place.run("send", "r1", "hello", "--id", "k1")
    assert (code, out) == (0, "k1\n")
    assert place.run("wait", "r1")[0] == 6
    assert place.run("up")[0] == 0
    assert place.run("send", "r1", "again", "--wait")[:2] == (0, "again")
    assert (place.mount / "agents/r1/inbox/k1").read_text().endswith("\n\nhello")


def test_a_mount_point_that_holds_something_is_refused(place: Place) -> None:
    place.mount.mkdir()
    (place.mount / "precious").write_text("x")
    code, _, err = place.run("up")
    assert code == 4
    assert "is not empty" in err
    assert place.pids() == (0, 0)


def test_a_part_that_ends_at_once_is_quoted(place: Place) -> None:
    assert place.run("init")[0] == 0
    place.home.mount_log.mkdir()
    code, _, err = place.run("up")
    assert code == 6
    assert err.startswith("zoefs: mount ended: ")
    assert "IsADirectoryError" in err
    eventually(lambda: place.pids() == (0, 0))


def test_agents_go_on_when_left_and_end_otherwise(place: Place) -> None:
    assert place.run("up")[0] == 0
    argv = 'argv=["sh", "-c", "sleep 2; echo turn {turn}"]'
    assert place.run("spawn", "r1", "--backend", "exec", "--set", argv)[0] == 0
    assert place.run("send", "r1", "x", "--id", "k1")[0] == 0
    stat = place.mount / "agents/r1/stat"
    eventually(lambda: "pid: \n" not in stat.read_text() and "status: running" in stat.read_text())
    code, out, _ = place.run("down", "--leave-agents")
    assert (code, "the agents go on" in out) == (0, True)
    assert place.run("up")[0] == 0
    assert place.run("wait", "r1", "--timeout", "30")[:2] == (0, "r1\tawait\n")
    assert (place.mount / "agents/r1/out").read_text() == "turn 1\n"

    assert place.run("send", "r1", "x", "--id", "k2")[0] == 0
    eventually(lambda: "pid: \n" not in stat.read_text() and "turn: 2" in stat.read_text())
    (pid,) = [int(line.split()[1]) for line in stat.read_text().splitlines() if line.startswith("pid:")]
    assert place.run("down")[0] == 0
    assert not Path(f"/proc/{pid}").exists()
    assert place.run("up")[0] == 0
    assert "stopped" not in place.run("wait", "r1", "--timeout", "30")[1]


def test_foreground_ends_both_on_a_signal(place: Place) -> None:
    process = place.start("up", "--foreground")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("mount ready")
    assert process.stdout.readline().startswith("supervisor ready")
    assert 0 not in place.pids()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, "")
    assert out.count("ended") == 2
    assert place.pids() == (0, 0)


def test_foreground_ends_when_a_part_ends(place: Place) -> None:
    process = place.start("up", "--foreground")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    place.kill(1)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 6
    assert err.startswith("zoefs: supervisor ended")


def test_the_parts_keep_nothing_of_their_caller(place: Place) -> None:
    read, write = os.pipe()
    (place.path / "trio.py").write_text("raise SystemExit('the wrong trio')\n")
    place.env["ZOEFS_AGENT"] = "somebody"
    process = place.start("up", pass_fds=(write,), cwd=place.path)
    os.close(write)
    _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, "")
    closed: list[bytes] = []
    thread = threading.Thread(target=lambda: closed.append(os.read(read, 1)), daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert closed == [b""]
    os.close(read)
    for pid in place.pids():
        assert "ZOEFS_AGENT" not in environment(pid)
        assert os.readlink(f"/proc/{pid}/cwd") == "/"

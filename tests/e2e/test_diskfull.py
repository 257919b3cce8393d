"""A full disk under HOME, and a HOME that may not be written: said at once and in words, and nothing half done.

HOME is a small tmpfs of the test's own. Mounting it needs root; without, these tests are skipped and say so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.reading import agent_home, check_journal, ends, story
from tests.living import Tree, ground, living, wait_for
from zoefs.disk.process import lives

SIZE = 8 << 20
GATED = (
    'backend = "exec"\n'
    'argv = ["sh", "-c", "cat >>$1/runs; while [ ! -e $1/go ]; do sleep 0.02; done; echo done", "sh", "{base}"]\n'
)


@contextlib.contextmanager
def tmpfs(path: Path, *options: str) -> Iterator[None]:
    """A small tmpfs at `path`, taken away afterwards."""
    if os.getuid() != 0:
        pytest.skip("not root: a small tmpfs for HOME cannot be mounted")
    path.mkdir()
    words = ",".join((f"size={SIZE}", "mode=700", *options))
    subprocess.run(["mount", "-t", "tmpfs", "-o", words, "zoefs-test", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def small(base: Path) -> Iterator[Tree]:
    """A living tree on a disk of 8 MiB, with the agent `e`: it notes its prompts outside and waits for base/go."""
    with tmpfs(base / "home"), living(base) as tree:
        tree.make("e", GATED.replace("{base}", str(base)))
        yield tree


def fill(tree: Tree, leave: int = 0) -> Path:
    """Use up the disk but for `leave` bytes; the file to remove."""
    filler = tree.home / ".filler"
    free = os.statvfs(tree.home).f_bavail * os.statvfs(tree.home).f_frsize
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        file.write(b"\0" * max(0, free - leave))
        while not leave:
            file.write(b"\0" * 4096)
    return filler


def check_alive(tree: Tree) -> None:
    """Both daemons live, and the mount answers."""
    assert all(lives(tree.part(name).mark) for name in ("mount", "supervisor"))
    assert (tree.mount / "health").read_text().startswith("mount ok")


def write_errno(path: Path, data: bytes) -> int:
    """The errno of write(2) to `path`; 0 where all was taken. close(2) is not looked at: ENOSPC is write's to say."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, data[done : done + 65536])
    except OSError as error:
        return error.errno or -1
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    return 0


@pytest.mark.parametrize("name", ["in", "inbox/k1"])
def test_no_space_is_an_error_of_write_and_leaves_nothing(small: Tree, base: Path, name: str) -> None:
    agent = small.agent("e")
    (base / "go").touch()
    filler = fill(small)
    assert write_errno(agent / name, b"hello\n") == errno.ENOSPC
    said = (agent / "error").read_text()
    assert "space" in said.lower()
    assert said.strip().endswith(os.strerror(errno.ENOSPC)) or len(said.split()) > 4
    assert small.status("e") == "await"
    assert os.listdir(agent / "inbox") == []
    assert not [path for path in agent_home(small, "e").orders.rglob("*") if path.is_file()]
    check_alive(small)
    filler.unlink()
    (agent / "inbox" / "k1").write_text("hello again\n")
    assert small.ended("e", "k1") == ("done", b"done\n")
    assert (base / "runs").read_text() == "hello again\n"
    check_journal(small, "e")


def test_a_long_prompt_that_fills_the_disk_is_refused_as_a_whole(small: Tree, base: Path) -> None:
    agent = small.agent("e")
    (base / "go").touch()
    filler = fill(small, leave=1 << 20)
    assert write_errno(agent / "inbox" / "k1", b"x" * (3 << 20)) == errno.ENOSPC
    assert small.status("e") == "await"
    assert "space" in (agent / "error").read_text().lower()
    free = os.statvfs(small.home).f_bavail * os.statvfs(small.home).f_frsize
    assert free > 900_000, "what was staged of it is still there"
    assert (
        small.shell(f"head -c 3000000 /dev/zero > {base}/long; cp {base}/long e/inbox/k2", check=False).returncode != 0
    )
    assert small.shell(f"cat {base}/long > e/in", check=False).returncode != 0
    assert os.listdir(agent / "inbox") == []
    small.shell("echo short > e/inbox/k3")
    assert small.ended("e", "k3")[0] == "done"
    filler.unlink()
    (agent / "inbox" / "k1").write_bytes(b"y" * (3 << 20))
    assert small.ended("e", "k1")[0] == "done"
    assert (base / "runs").read_bytes() == b"short\n" + b"y" * (3 << 20)


def test_drafts_verbs_specs_and_new_agents_say_it_too(small: Tree) -> None:
    agent = small.agent("e")
    filler = fill(small)
    assert write_errno(agent / "inbox" / ".draft", b"x" * 100) == errno.ENOSPC
    assert write_errno(agent / "ctl", b"interrupt\n") == errno.ENOSPC
    assert write_errno(agent / "out", b"mine\n") == errno.ENOSPC
    assert small.shell(
        "echo 'model = \"x\"' >> e/spec; mkdir n && echo 'backend = \"claude\"' > n/spec", check=False
    ).returncode
    check_alive(small)
    assert small.status("e") == "await"
    filler.unlink()
    assert not (small.agent("n") / "spec").exists() or (small.agent("n") / "spec").read_text() == ""
    (agent / "ctl").write_text("#key interrupt\n")
    wait_for(lambda: small.receipt("e", "key")[0]["receipt"] == "done", "the verb is carried out")


def test_what_was_accepted_before_is_delivered_once_when_there_is_space_again(small: Tree, base: Path) -> None:
    agent = small.agent("e")
    (agent / "inbox" / "k1").write_text("one\n")
    wait_for((base / "runs").exists, "the first turn runs")
    for n, text in ((2, "two"), (3, "three")):
        (agent / "inbox" / f"k{n}").write_text(text + "\n")
    filler = fill(small)
    assert write_errno(agent / "inbox" / "k4", b"four\n") == errno.ENOSPC
    (base / "go").touch()  # the turn ends on a full disk: its answer, its exit code and its end cannot be written
    wait_for(lambda: not runs_now(small) or "space" in errors(small), "the supervisor met the full disk")
    time.sleep(1.0)  # nothing is to happen now: what waits must not be worked off into a disk that takes no answer
    assert (base / "runs").read_text() == "one\n", "prompts were given whose answers nobody could keep"
    status = small.stat("e")
    assert (status["status"], status["reason"]) in (("running", ""), ("failed", "disk-full"))
    check_alive(small)
    filler.unlink()
    if status["status"] == "failed":
        (agent / "ctl").write_text("restart\n")
    assert [small.ended("e", f"k{n}")[0] for n in (2, 3)] == ["done", "done"]
    first = small.ended("e", "k1")[0]
    assert first in ("done", "failed", "lost"), story(small, "e", "k1")
    assert ends(small, "e", "k1") == [first]
    assert (base / "runs").read_text() == "one\ntwo\nthree\n"
    assert small.settle("e") == "await"
    (agent / "inbox" / "k4").write_text("four\n")
    assert small.ended("e", "k4") == ("done", b"done\n")
    check_journal(small, "e")


def runs_now(tree: Tree) -> bool:
    """Whether the agent has a process."""
    pid = tree.stat("e")["pid"]
    return bool(pid) and Path(f"/proc/{pid}").exists()


def errors(tree: Tree) -> str:
    """What the supervisor complained of."""
    path = tree.home / "log" / "supervisor.err"
    return path.read_text() if path.exists() else ""


def test_daemons_killed_on_a_full_disk_come_back(small: Tree, base: Path) -> None:
    agent = small.agent("e")
    (agent / "inbox" / "k1").write_text("one\n")
    wait_for((base / "runs").exists, "the first turn runs")
    (agent / "inbox" / "k2").write_text("two\n")
    filler = fill(small)
    small.kill("mount")
    small.kill("supervisor")
    small.zoefs("up", check=False)
    filler.unlink()
    small.up()
    check_alive(small)
    (base / "go").touch()
    assert [small.ended("e", f"k{n}")[0] for n in (1, 2)] == ["done", "done"]
    assert (base / "runs").read_text() == "one\ntwo\n"
    check_journal(small, "e")


# -- no permission ------------------------------------------------------------------------------------------------


def up(tree: Tree, *prefix: str) -> tuple[int, str]:
    """Run `zoefs up` behind a prefix; its exit code and what it said on stderr."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", "from zoefs.cli.main import main; main()", "up"],
        env=tree.env,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    return done.returncode, done.stderr


def check_refused(tree: Tree, told: tuple[int, str], reason: int) -> None:
    """Exit code not 0, one sentence that names the place and why, and nothing runs."""
    code, said = told
    assert code != 0
    assert os.strerror(reason).lower() in said.lower(), said
    assert str(tree.home) in said
    assert len(said.strip().splitlines()) == 1, said
    assert not tree.mounted()
    assert tree.processes() == []


def test_a_read_only_disk_is_a_sentence(base: Path) -> None:
    with tmpfs(base / "disk", "ro"):
        tree = ground(base / "disk")
        check_refused(tree, up(tree), errno.EROFS)


def test_a_home_that_became_read_only_is_a_sentence(base: Path) -> None:
    with tmpfs(base / "home"):
        tree = ground(base)
        tree.up()
        tree.down()
        subprocess.run(["mount", "-o", "remount,ro", str(tree.home)], check=True)
        check_refused(tree, up(tree), errno.EROFS)


def test_a_home_that_may_not_be_written_is_a_sentence(base: Path) -> None:
    """Root is held to the modes too, once it has given up the capability to pass them by."""
    tree = ground(base)
    tree.home.mkdir(mode=0o500)
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    check_refused(tree, up(tree, *(prefix if os.getuid() == 0 else ())), errno.EACCES)
    assert os.listdir(tree.home) == []

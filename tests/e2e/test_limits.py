"""What a machine gives of descriptors and of inotify: taken, given back to the CLIs, and done without where it ends."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.fake_cli import Fake
from tests.living import DEADLINE, Tree, ground, living, wait_for

NOFILE = resource.RLIMIT_NOFILE
CAT = 'backend = "exec"\nargv = ["cat"]\n'


def pid_of(tree: Tree, part: str) -> int:
    return tree.part(part).mark.pid


def said(tree: Tree, part: str) -> str:
    """What a daemon complained of."""
    return (tree.home / "log" / ("zoefs.err" if part == "mount" else f"{part}.err")).read_text()


def test_the_daemons_take_all_descriptors_and_the_clis_get_the_callers_limit(base: Path) -> None:
    _, hard = resource.getrlimit(NOFILE)
    tree = ground(base)
    done = subprocess.run(
        ["prlimit", f"--nofile=517:{hard}", sys.executable, "-m", "zoefs.cli.main", "up"],
        env=tree.env,
        timeout=2 * DEADLINE,
        check=False,
    )
    with living(base):
        assert done.returncode == 0
        for part in ("mount", "supervisor"):
            assert resource.prlimit(pid_of(tree, part), NOFILE) == (hard, hard)
        tree.make("r1", 'backend = "exec"\nargv = ["sh", "-c", "ulimit -Sn; ulimit -Hn"]\n')
        (tree.agent("r1") / "inbox" / "k").write_text("go")
        assert tree.ended("r1", "k") == ("done", f"517\n{hard}\n".encode())


def test_a_mount_without_descriptors_refuses_says_so_and_goes_on(tree: Tree) -> None:
    tree.make("r1", CAT)
    (tree.agent("r1") / "inbox" / "k").write_text("one")
    assert tree.ended("r1", "k") == ("done", b"one")
    pid = pid_of(tree, "mount")
    before = resource.prlimit(pid, NOFILE)
    few = len(os.listdir(f"/proc/{pid}/fd")) + 20
    resource.prlimit(pid, NOFILE, (few, before[1]))
    refused = []
    with ExitStack() as stack:
        for _ in range(200):
            try:
                stack.callback(os.close, os.open(tree.agent("r1") / "events", os.O_RDONLY))
            except OSError as error:
                refused.append(error.errno)
        assert set(refused) == {errno.EMFILE}
        assert len(refused) >= 100
        assert tree.status("r1") == "await", "what needs no descriptor is answered"
        wait_for(lambda: "no descriptor was left for" in said(tree, "mount"), "it says so")
        assert f"the limit is {few}" in said(tree, "mount")
    assert (tree.agent("r1") / "events").read_text()
    resource.prlimit(pid, NOFILE, before)
    (tree.agent("r1") / "inbox" / "k2").write_text("two")
    assert tree.ended("r1", "k2") == ("done", b"two")
    assert pid_of(tree, "mount") == pid


def test_a_supervisor_without_descriptors_waits_says_so_and_goes_on(base: Path) -> None:
    fake = Fake(base / "fake")
    with living(base, fake.env) as tree:
        pid = pid_of(tree, "supervisor")
        names = [f"r{n}" for n in range(8)]
        for name in names:
            tree.make(name, 'backend = "claude"\n')
        before = resource.prlimit(pid, NOFILE)
        few = len(os.listdir(f"/proc/{pid}/fd")) + 12
        resource.prlimit(pid, NOFILE, (few, before[1]))
        for name in names:
            (tree.agent(name) / "inbox" / "k").write_text("p")
        wait_for(lambda: "no descriptor is left" in said(tree, "supervisor"), "it says so")

        def worked() -> float:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        begin, then = worked(), time.monotonic()
        time.sleep(3.0)
        assert worked() - begin < 0.5 * (time.monotonic() - then), "it waits, and does not try without pause"
        assert said(tree, "supervisor").count("\n") < 5, said(tree, "supervisor")
        assert (tree.mount / "health").read_text().splitlines()[1].startswith("supervisor ok")
        resource.prlimit(pid, NOFILE, before)
        for name in names:
            assert tree.ended(name, "k") == ("done", b"fake: p\n")
        assert pid_of(tree, "supervisor") == pid


WITHIN = """
import os, subprocess, sys
limit, value, *command = sys.argv[1:]
open("/proc/sys/user/" + limit, "w").write(value)
zoefs = lambda *words: subprocess.run([*command, *words], text=True, stdin=subprocess.DEVNULL, check=True)
zoefs("up")
try:
    for name in ("r1", "r2", "r3"):
        zoefs("spawn", name, "--backend", "exec", "--set", 'argv=["cat"]')
        zoefs("send", name, "--wait", "--id", "k", "hello " + name)
    mount = os.environ["ZOEFS_MOUNT"]
    for name in ("r1", "r2", "r3"):
        print(open(f"{mount}/agents/{name}/out").read())
    zoefs("stop", "r1")
    zoefs("retire", "r1")
finally:
    zoefs("down")
"""


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
"""Gives a program limits of inotify of its own, and mounts that nobody else sees."""


@pytest.mark.parametrize(
    ("limit", "value", "sentences"),
    [
        ("max_inotify_instances", "0", {"mount": "no inotify to be had", "supervisor": "no inotify to be had"}),
        ("max_inotify_watches", "4", {"supervisor": "no watch to be had"}),
    ],
)
def test_without_inotify_everything_is_found_by_looking(
    base: Path, limit: str, value: str, sentences: dict[str, str]
) -> None:
    tree = ground(base)
    command = [sys.executable, "-m", "zoefs.cli.main"]
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", WITHIN, limit, value, *command],
        env=tree.env,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=5 * DEADLINE,
        check=False,
    )
    logs = {part: said(tree, part) for part in ("mount", "supervisor")}
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{logs}"
    assert all(f"hello r{n}" in done.stdout for n in (1, 2, 3)), done.stdout
    for part, sentence in sentences.items():
        assert logs[part].count(sentence) == 1, logs
    assert "Traceback" not in "".join(logs.values()), logs

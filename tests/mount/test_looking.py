"""Guarantee 6 among many agents: whoever looks finds what is there, changes nothing, and waits for nothing.

The agents rest in every state that lasts (`crowd`); the programs that look, and what they must find, are in `looks`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.living import DEADLINE, Tree, wait_for
from tests.mount.clients import needs, pipe
from tests.mount.crowd import BEATS, Crowd, crowded, picture
from tests.mount.daemon import Belongings, belongings
from tests.mount.looks import LOOKS, Sight, sight
from tests.mount.waiters import parked

AGENTS, INDEXERS = (1000, 4) if os.environ.get("ZOEFS_SOAK") == "1" else (27, 4)
READERS = 500
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    needs("file", "git", "rsync", "setpriv")
    base = tempfile.TemporaryDirectory(prefix="zoefs-", dir=os.environ.get("ZOEFS_TEST_DIR"))
    with base, crowded(Path(base.name), AGENTS) as found:
        yield found


@pytest.fixture(scope="module")
def at_first(crowd: Crowd) -> tuple[Belongings, dict[str, str]]:
    """What the daemon had, and had refused, before anybody looked at the whole."""
    return belongings(crowd.tree), crowd.refusals()


@pytest.fixture(scope="module")
def seen(crowd: Crowd, at_first: tuple[Belongings, dict[str, str]]) -> Sight:
    return sight(crowd.tree.mount)


@contextlib.contextmanager
def unchanged(crowd: Crowd, *but: str) -> Iterator[None]:
    """The body changes nothing in HOME, where refusals are noted too, no status, and no line of `list`."""
    before, words = picture(crowd.tree.home, *but), crowd.words()
    listed = (crowd.tree.mount / "agents/list").read_bytes()
    yield
    after = picture(crowd.tree.home, *but)
    assert {name: after.get(name) for name in after.keys() | before.keys() if after.get(name) != before.get(name)} == {}
    assert crowd.words() == words
    assert (crowd.tree.mount / "agents/list").read_bytes() == listed


def run(crowd: Crowd, look: str, seen: Sight, base: Path) -> None:
    """One look, and what is demanded of it."""
    script, demand = LOOKS[look]
    copy = base / look.replace(" ", "_")
    done = crowd.tree.shell(f"cd {crowd.tree.mount}; COPY={copy}; set -o pipefail; {script}", check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-1000:]
    demand(seen, done.stdout, copy)


def test_what_is_there_is_what_the_tables_say(crowd: Crowd, seen: Sight) -> None:
    assert seen.paths == crowd.names()


@pytest.mark.parametrize("look", LOOKS)
def test_a_look(crowd: Crowd, seen: Sight, base: Path, look: str) -> None:
    with unchanged(crowd, *BEATS):
        run(crowd, look, seen, base)


# Its owner may not read what has no permission to be read, like any file of mode 0200; root may read everything.
OWNERS = {
    "grep": ("grep -r nothing-of-this .", 2),
    "cp": ("cp -r . $COPY", 1),
    "tar": ("tar cf $COPY .", 2),
    "rsync": ("rsync -a . $COPY", 23),
    "find -readable": ("find . -type f -readable -exec cat {} + > /dev/null", 0),
    "rsync --exclude": ("rsync -a --exclude=in --exclude=ctl . $COPY", 0),
}


@pytest.mark.parametrize("look", OWNERS)
def test_a_look_of_who_is_not_root(crowd: Crowd, seen: Sight, base: Path, look: str) -> None:
    """`in` and `ctl` are write only: a program that reads all says so of each of them, and of nothing else."""
    script, status = OWNERS[look]
    owner = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    with unchanged(crowd, *BEATS):
        done = subprocess.run(
            [*owner, "bash", "-c", script],
            cwd=crowd.tree.mount,
            env={**crowd.tree.env, "COPY": str(base / "copy")},
            capture_output=True,
            text=True,
            timeout=10 * DEADLINE,
            check=False,
        )
    assert done.returncode == status, done.stderr
    write_only = {path for path in seen.files if re.fullmatch("agents/[^/]+/(in|ctl)", path)}
    told = set(re.findall(r"agents/[^/]+/\w+(?=[:'\"].*Permission denied)", done.stderr))
    assert told == (write_only if status else set())
    assert done.stderr.count("Permission denied") == len(told)


# -- nothing waits -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def indexers(tree: Tree) -> Iterator[list[subprocess.Popen[str]]]:
    """Many at the same time."""
    argv = [sys.executable, "-m", "tests.mount.indexer", str(tree.mount)]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True))
            for _ in range(INDEXERS)
        ]


def test_looks_at_the_same_time_wait_for_nobody(crowd: Crowd, seen: Sight, base: Path) -> None:
    """The supervisor stands still, hundreds wait in `wait`, locks are held, a FIFO has no writer: all looks end.

    Nothing is left waiting but those readers, each a task; so nothing of HOME is excused here, not even a heartbeat.
    """
    resting = crowd.metric("zoefs_tasks")
    os.kill(crowd.tree.part("supervisor").mark.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: "supervisor degraded" in (crowd.tree.mount / "health").read_text(), "health says it")
        alone = sight(crowd.tree.mount)
        with unchanged(crowd), parked(crowd.tree, crowd.of("running"), READERS) as readers:
            with indexers(crowd.tree) as processes:
                for look in ("ls -laR", "tar"):
                    run(crowd, look, alone, base)
                for process in processes:
                    found = json.loads(pipe(process.stdout).read())
                    assert not found["wrong"]
                    assert set(found["files"]) == seen.files.keys()
            wait_for(lambda: READERS <= crowd.metric("zoefs_tasks") <= READERS + resting + 2, "only readers are tasks")
            assert readers.words() == []
    finally:
        os.kill(crowd.tree.part("supervisor").mark.pid, signal.SIGCONT)


def test_the_daemon_keeps_nothing(crowd: Crowd, at_first: tuple[Belongings, dict[str, str]], seen: Sight) -> None:
    """Descriptors, tasks and threads are those of before, and none of all these looks was refused anything.

    Two things stay for a while: the directories shown through that were used last (512 descriptors at most), and a
    thread without work, for 10 s.
    """
    before, refusals = at_first
    wait_for(lambda: belongings(crowd.tree).without_kept(crowd.tree) == before.without_kept(crowd.tree), "at rest")
    wait_for(lambda: belongings(crowd.tree).threads <= before.threads, "the threads have gone")
    wait_for(lambda: crowd.metric("zoefs_tasks") <= before.tasks + 2, "the tasks have gone")
    assert crowd.refusals() == refusals


def test_without_a_supervisor(crowd: Crowd, seen: Sight, base: Path) -> None:
    """The last of this file: it kills the supervisor."""
    crowd.tree.kill("supervisor")
    wait_for(lambda: "supervisor absent" in (crowd.tree.mount / "health").read_text(), "health says it")
    alone = sight(crowd.tree.mount)
    assert alone.paths == seen.paths
    with unchanged(crowd):
        for look in ("ls -lR", "grep -r", "cp -a"):
            run(crowd, look, alone, base)
    crowd.tree.up()

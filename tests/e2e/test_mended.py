"""What people who had never seen the code broke, and how it must be instead: one test a finding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from supervisor.process import descendants
from tests.e2e.fake_cli import Fake
from tests.living import Tree, ground, living, wait_for
from zoefs.disk.process import lives

GATED = """backend = "exec"
argv = ["sh", "-c", "cat >> BASE/runs; while [ ! -e BASE/go ]; do sleep 0.01; done; echo done"]
"""


def gated(base: Path) -> str:
    return GATED.replace("BASE", str(base))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_kib(pid: int) -> int:
    """The most memory a process ever had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def told(tree: Tree, name: str, kind: str) -> list[dict[str, object]]:
    """The events of one kind."""
    lines = (tree.agent(name) / "events").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def test_strangers_in_the_agents_directory_harm_nobody(base: Path) -> None:
    tree = ground(base)
    tree.zoefs("init")
    (tree.home / "agents" / "notes").write_text("a file")
    (tree.home / "agents" / "empty").mkdir()
    with living(base) as tree:
        tree.make("a", 'backend = "exec"\nargv = ["cat"]\n')
        (tree.agent("a") / "inbox" / "k1").write_text("hello\n")
        assert tree.ended("a", "k1") == ("done", b"hello\n")
        assert sorted(os.listdir(tree.mount / "agents")) == ["a", "list"]
        pid = tree.part("supervisor").mark.pid
        before = cpu_seconds(pid)
        time.sleep(1.0)
        assert cpu_seconds(pid) - before < 0.5, "it spins"


def test_an_interrupt_begun_before_a_crash_means_the_turn_it_was_begun_in(tree: Tree, base: Path) -> None:
    """The process ends on TERM while no supervisor lives; the prompt behind it must not be interrupted too."""
    agent = tree.make("a", gated(base))
    (agent / "inbox" / "one").write_text("one\n")
    wait_for((base / "runs").exists, "the first turn runs")
    (agent / "inbox" / "two").write_text("two\n")
    tree.kill("supervisor", signal.SIGSTOP)
    (agent / "ctl").write_text("#stop-it interrupt\n")
    tree.kill("supervisor", signal.SIGCONT)
    wait_for(lambda: told(tree, "a", "verb-begun"), "it is begun")
    tree.kill("supervisor")
    (base / "go").touch()
    tree.up()
    assert tree.ended("a", "one")[0] == "cancelled"
    assert tree.ended("a", "two") == ("done", b"done\n")
    assert tree.ended("a", "stop-it")[0] == "done"
    assert (base / "runs").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("what", ["absent", "fifo", "latin-1", "nul", "huge"])
def test_a_bad_env_file_is_a_sentence_and_nobody_else_waits(tree: Tree, base: Path, what: str) -> None:
    path = base / "env"
    match what:
        case "fifo":
            os.mkfifo(path)
        case "latin-1":
            path.write_bytes(b"A=\xff\n")
        case "nul":
            path.write_bytes(b"A=1\0b\n")
        case "huge":
            path.write_bytes(b"A=1\n" * (1 << 18))
        case _:
            pass
    other = tree.make("b", 'backend = "exec"\nargv = ["cat"]\n')
    agent = tree.make("a", f'backend = "exec"\nargv = ["cat"]\nenv_file = "{path}"\n')
    (agent / "inbox" / "k1").write_text("hello\n")
    assert tree.settle("a") == "failed"
    assert tree.stat("a")["reason"] == "config"
    assert str(path) in (agent / "error").read_text()
    (other / "inbox" / "k1").write_text("hello\n")
    assert tree.ended("b", "k1") == ("done", b"hello\n")
    path.unlink(missing_ok=True)
    path.write_text("A=1\n")
    (agent / "ctl").write_text("restart\n")
    assert tree.ended("a", "k1") == ("done", b"hello\n")


def test_a_running_agent_is_adopted_whatever_became_of_its_env_file(tree: Tree, base: Path) -> None:
    (base / "env").write_text("A=1\n")
    agent = tree.make("a", gated(base) + f'env_file = "{base}/env"\n')
    (agent / "inbox" / "k1").write_text("one\n")
    wait_for((base / "runs").exists, "the turn runs")
    (base / "env").unlink()
    tree.kill("supervisor")
    tree.up()
    (base / "go").touch()
    assert tree.ended("a", "k1") == ("done", b"done\n")


def test_a_program_with_an_equals_sign_in_its_path_is_run(tree: Tree, base: Path) -> None:
    place = base / "exp=1"
    place.mkdir()
    (place / "run.sh").write_text("#!/bin/sh\necho it ran\n")
    (place / "run.sh").chmod(0o755)
    agent = tree.make("a", f'backend = "exec"\ncwd = "{place}"\nargv = ["./run.sh"]\n')
    (agent / "inbox" / "k1").write_text("x")
    assert tree.ended("a", "k1") == ("done", b"it ran\n")


def test_a_long_answer_is_not_held_in_memory(tree: Tree) -> None:
    agent = tree.make("a", 'backend = "exec"\nargv = ["head", "-c", "200000000", "/dev/zero"]\n')
    pid = tree.part("supervisor").mark.pid
    before = peak_kib(pid)
    (agent / "inbox" / "k1").write_text("x")
    wait_for(lambda: (agent / "status").read_text() == "await\n", "the turn ends")
    assert (agent / "out").stat().st_size == 200_000_000
    assert peak_kib(pid) - before < 50_000


def test_a_draft_is_cut_by_its_name(tree: Tree) -> None:
    agent = tree.make("a", 'backend = "exec"\nargv = ["cat"]\n')
    (agent / "inbox" / ".k").write_text("hello")
    os.truncate(agent / "inbox" / ".k", 2)
    assert (agent / "inbox" / ".k").read_text() == "he"


def test_a_mount_point_that_serves_another_home_is_refused(tree: Tree, base: Path) -> None:
    other = ground(base / "other", {"ZOEFS_MOUNT": str(tree.mount)})
    (base / "other").mkdir()
    done = other.zoefs("up", check=False)
    assert done.returncode == 4, done.stderr
    assert "mounted there already" in done.stderr
    assert not other.processes()
    assert (tree.mount / "health").read_text().startswith("mount ok")


def test_down_ends_clis_that_run_without_a_supervisor(tree: Tree, base: Path) -> None:
    agent = tree.make("a", gated(base))
    (agent / "inbox" / "k1").write_text("one\n")
    wait_for((base / "runs").exists, "the turn runs")
    tree.kill("supervisor")
    tree.down()
    helper = "fusermount3"  # it ends by itself once it finds its daemon dead
    assert not [line for _, line in tree.processes() if line[0] != helper]
    wait_for(lambda: not tree.processes(), "the helper is gone, too")


def test_sending_to_an_agent_that_fails_to_start_does_not_wait_for_ever(tree: Tree, base: Path) -> None:
    tree.make("a", f'backend = "exec"\nargv = ["cat"]\ncwd = "{base}/nowhere"\n')
    done = tree.zoefs("send", "a", "x", "--id", "k1", "--wait", check=False)
    assert done.returncode == 1
    assert "k1 is queued" in done.stderr


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_a_start_that_cannot_be_is_refused_where_its_fate_is_read(tree: Tree, verb: str) -> None:
    agent = tree.make("a", 'backend = "exec"\nargv = ["cat"]\n')
    (agent / "inbox" / "k1").write_text("x")
    assert tree.ended("a", "k1")[0] == "done"
    (agent / "ctl").write_text("stop\n")
    assert tree.settle("a") == "stopped"
    (agent / "spec").write_text("argv = [")
    (agent / "ctl").write_text(f"#go {verb}\n")
    assert tree.ended("a", "go")[0] == "failed"
    assert tree.settle("a") == "failed"
    assert "line 1" in (agent / "error").read_text()
    (agent / "spec").write_text('backend = "exec"\nargv = ["tac"]\n')
    (agent / "ctl").write_text("restart\n")
    (agent / "inbox" / "k2").write_text("x\n")
    assert tree.ended("a", "k2")[0] == "done"


def test_a_prompt_on_its_way_keeps_its_agent(tree: Tree) -> None:
    agent = tree.make("a", 'backend = "exec"\nargv = ["cat"]\n')
    fd = os.open(agent / "in", os.O_WRONLY)
    os.write(fd, b"accepted\n")
    with pytest.raises(OSError, match="busy"):
        agent.rmdir()
    os.close(fd)
    assert tree.settle("a") == "await"
    assert (agent / "out").read_text() == "accepted\n"


def test_why_a_turn_was_cut_short_is_in_its_receipt(tree: Tree) -> None:
    agent = tree.make("a", 'backend = "exec"\nargv = ["sleep", "100"]\nturn_timeout = 0.3\n')
    (agent / "inbox" / "k1").write_text("x")
    assert tree.ended("a", "k1")[0] == "cancelled"
    assert "turn_timeout" in tree.receipt("a", "k1")[0]["note"]


@pytest.fixture
def fake(base: Path) -> Fake:
    return Fake(base / "fake")


def test_last_words_that_ask_for_another_start_do_not_open_a_back_door(base: Path, fake: Fake) -> None:
    """`is already in use` flips resume once; after that it is a death like any other, and the breaker counts it."""
    fake.be("taken")
    with living(base, fake.env) as tree:
        agent = tree.make("a", 'backend = "claude"\nrestart = { floor = 0.05, cap = 0.1, burst = 3 }\n')
        (agent / "inbox" / "k1").write_text("x")
        assert tree.settle("a") == "failed"
        assert tree.stat("a")["reason"] == "crash-loop"
        assert len(fake.starts) <= 4


def test_starts_are_few_at_once(base: Path, fake: Fake) -> None:
    fake.be("slow")
    with living(base, fake.env) as tree:
        for n in range(8):
            (tree.make(f"a{n}", 'backend = "claude"\n') / "inbox" / "k1").write_text("x")
        wait_for(lambda: len(list(fake.path.glob("in-handshake-*"))) == 3, "three start")
        time.sleep(0.5)
        assert len(list(fake.path.glob("in-handshake-*"))) == 3
        pid = tree.part("supervisor").mark.pid
        before = cpu_seconds(pid)
        time.sleep(1.0)
        assert cpu_seconds(pid) - before < 0.5, "it spins"
        (fake.path / "go").touch()
        for n in range(8):
            assert tree.ended(f"a{n}", "k1") == ("done", b"fake: x\n")


def test_a_cli_that_does_not_read_costs_nothing(base: Path, fake: Fake) -> None:
    with living(base, fake.env) as tree:
        agent = tree.make("a", 'backend = "claude"\n')
        (agent / "inbox" / "k1").write_text("x")
        assert tree.ended("a", "k1")[0] == "done"
        cli = descendants(int(tree.stat("a")["pid"]))[0]
        os.kill(cli, signal.SIGSTOP)
        (agent / "inbox" / "k2").write_text("y" * 300_000)
        wait_for(lambda: tree.receipt("a", "k2")[0]["receipt"] == "sent", "it is given")
        pid = tree.part("supervisor").mark.pid
        before = cpu_seconds(pid)
        time.sleep(1.0)
        assert cpu_seconds(pid) - before < 0.5, "it spins"
        os.kill(cli, signal.SIGCONT)
        assert tree.ended("a", "k2")[0] == "done"


def test_a_second_signal_does_not_cut_the_end_short(base: Path) -> None:
    tree = ground(base)
    words = [str(Path(tree.env["PATH"].split(":")[0]) / "python"), "-m", "zoefs.cli.main", "up", "--foreground"]
    with subprocess.Popen(words, env=tree.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        assert "ready" in process.stdout.readline()
        mark = tree.part("mount").mark
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0
    assert not lives(mark)
    assert not tree.mounted()
    assert not tree.processes()

"""The tree over sshfs, mounted by the recipe of the manual: what another machine may rely on.

The other machine is this one: an sshd of the test's own on loopback, with its own key and configuration. What sshfs
cannot carry (the number of an error, a durable close) is not asked for; what the manual promises is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.e2e.reading import below, check_journal, events
from tests.e2e.tracing import needs
from tests.living import Tree, living, wait_for
from tests.mount.followers import following, opened

RECIPE = "sshfs_sync,direct_io,dir_cache=no,attr_timeout=0,entry_timeout=0"
"""One connection; each option is there for a reason (facts on sshfs: stale sizes, stale words, unseen refusals)."""
UPPER = 'backend = "exec"\nargv = ["tr", "a-z", "A-Z"]\n'
GATED = 'backend = "exec"\nargv = ["sh", "-c", "while [ ! -e $1/go ]; do sleep 0.02; done; cat", "sh", "{base}"]\n'


@attrs.frozen
class Far:
    """A living tree and the same tree seen over sshfs."""

    tree: Tree
    mount: Path

    def agent(self, name: str) -> Path:
        return self.mount / "agents" / name

    def shell(self, script: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
        """Run a script in the far agents/."""
        return subprocess.run(
            [shell, "-c", script],
            cwd=self.mount / "agents",
            env=self.tree.env,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def until_await(self, name: str) -> None:
        """Poll `agents/list` until the agent is `await`, as the manual tells remote programs to."""

        def word() -> str:
            rows = [line.split("\t") for line in (self.mount / "agents" / "list").read_text().splitlines()]
            return next((row[1] for row in rows if row[0] == name), "")

        wait_for(lambda: word() == "await", f"{name} is await in the far list")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as link:
        return link.recv(4) == b"SSH-"
    return False


@contextlib.contextmanager
def sshd(base: Path) -> Iterator[tuple[int, Path]]:
    """An sshd of our own on loopback; its port and a key that it accepts."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)], check=True)
    port = free_port()
    config = base / "sshd_config"
    config.write_text(f"""\
ListenAddress 127.0.0.1
Port {port}
HostKey {base}/host
AuthorizedKeysFile {base}/user.pub
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
Subsystem sftp internal-sftp
""")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation wants it, and names it itself
    with (base / "sshd.log").open("wb") as log:
        server = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        wait_for(lambda: answers(port) or server.poll() is not None, "sshd answers")
        assert server.poll() is None, (base / "sshd.log").read_text()
        yield port, base / "user"
    finally:
        sessions = below(server.pid)
        server.terminate()
        server.wait(30)
        wait_for(lambda: not [pid for pid in sessions if Path(f"/proc/{pid}").exists()], "the sessions of sshd ended")


@contextlib.contextmanager
def sshfs(base: Path, tree: Tree, port: int, key: Path) -> Iterator[Path]:
    """MOUNT mounted over sshfs; unmounted, and its sshfs ended, afterwards."""
    far = base / "far"
    far.mkdir()
    user = pwd.getpwuid(os.getuid()).pw_name
    ssh = f"StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,IdentitiesOnly=yes,BatchMode=yes,IdentityFile={key}"
    words = ["sshfs", "-f", "-F", "/dev/null", "-p", str(port), "-o", f"{RECIPE},{ssh}"]
    with (base / "sshfs.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, f"{user}@127.0.0.1:{tree.mount}", str(far)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: (far / "help").exists() or process.poll() is not None, "sshfs is mounted")
        assert process.poll() is None, (base / "sshfs.log").read_text() + (base / "sshd.log").read_text()
        yield far
    finally:
        if process.poll() is None:
            subprocess.run(["fusermount3", "-u", str(far)], check=True, timeout=60)
        process.wait(30)
        assert os.listdir(far) == []


@pytest.fixture
def far(base: Path) -> Iterator[Far]:
    for program in ("sshfs", "ssh-keygen", "/usr/sbin/sshd"):
        needs(program)
    with living(base) as tree, sshd(base) as (port, key), sshfs(base, tree, port, key) as mount:
        yield Far(tree, mount)


def test_prompt_status_answer_and_stat(far: Far) -> None:
    far.tree.make("e", UPPER)
    assert far.shell("echo hello > e/in").returncode == 0
    far.until_await("e")
    assert far.shell("cat e/out").stdout == "HELLO\n"
    assert far.shell("cat e/status").stdout == "await\n"
    stat = far.shell("cat e/stat").stdout
    assert stat == (far.tree.agent("e") / "stat").read_text()
    assert "last_turn: done\n" in stat
    assert (far.agent("e") / "chat").read_text() == (far.tree.agent("e") / "chat").read_text()
    assert (far.agent("e") / "events").read_bytes() == (far.tree.agent("e") / "events").read_bytes()
    assert far.shell("cat ../health").stdout.startswith("mount ok")


def test_the_loop_of_the_manual_is_right_on_one_connection(far: Far) -> None:
    far.tree.make("e", UPPER)
    for n in range(20):
        loop = f'echo turn {n} > e/in; while w=$(cat e/wait) && [ -z "$w" ]; do :; done; [ "$w" = await ] && cat e/out'
        assert far.shell(loop, shell="dash").stdout == f"TURN {n}\n"


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_refusal_is_an_error_and_its_sentence_is_in_error(far: Far, shell: str) -> None:
    far.tree.make("e", UPPER)
    assert far.shell("echo no-such-verb > e/ctl", shell).returncode != 0
    assert "no-such-verb" in far.shell("cat e/error").stdout
    assert far.shell("echo stop > e/ctl", shell).returncode == 0
    wait_for(lambda: far.shell("cat e/status").stdout == "stopped\n", "stopped")
    refused = far.shell("echo hello > e/in", shell)
    assert refused.returncode != 0
    assert refused.stderr
    assert "start" in far.shell("cat e/error").stdout
    assert [event.kind for event in events(far.tree, "e") if event.kind == "prompt-given"] == []


def test_a_prompt_by_id_is_read_back(far: Far, base: Path) -> None:
    far.tree.make("e", GATED.replace("{base}", str(base)))
    text = "".join(f"line {n} of a long prompt\n" for n in range(20_000))
    (base / "text").write_text(text)
    assert far.shell(f"cp {base}/text e/inbox/k1").returncode == 0
    assert far.shell("echo second > e/inbox/k2").returncode == 0
    wait_for(lambda: far.shell("head -n1 e/inbox/k1").stdout == "receipt: sent\n", "the receipt says sent")
    assert far.shell("head -n1 e/inbox/k2").stdout == "receipt: queued\n"
    assert far.shell("cat e/status").stdout == "running\n"
    (base / "go").touch()
    far.until_await("e")
    head, _, answer = far.shell("cat e/inbox/k1").stdout.partition("\n\n")
    assert head.startswith("receipt: done\n")
    assert answer == text
    assert far.shell("cat e/inbox/k2").stdout.endswith("\n\nsecond\n")
    assert sorted(far.shell("ls e/inbox").stdout.split()) == ["k1", "k2"]
    assert far.shell("echo third > e/inbox/k1").returncode != 0
    assert far.shell("cat e/inbox/k1").stdout.endswith(text)
    check_journal(far.tree, "e")


def test_a_draft_is_written_read_and_moved_in(far: Far) -> None:
    far.tree.make("e", UPPER)
    assert far.shell("echo a draft > e/inbox/.k && cat e/inbox/.k").stdout == "a draft\n"
    assert far.shell("cat e/status").stdout == "await\n"
    assert far.shell("mv e/inbox/.k e/inbox/k").returncode == 0
    wait_for(lambda: far.shell("cat e/inbox/k").stdout.startswith("receipt: done\n"), "the receipt says done")
    assert far.shell("cat e/inbox/k").stdout.endswith("\n\nA DRAFT\n")
    assert far.shell("ls -A e/inbox").stdout == "k\n"
    far.shell("echo another > e/inbox/.k")
    assert far.shell("mv -f e/inbox/.k e/inbox/k").returncode != 0
    assert far.shell("cat e/inbox/k").stdout.endswith("\n\nA DRAFT\n")


def test_an_agent_is_made_listed_and_retired_from_afar(far: Far) -> None:
    assert far.shell(f"mkdir n && cat > n/spec <<'E'\n{UPPER}E").returncode == 0
    assert "exists" in far.shell("mkdir n").stderr
    with pytest.raises(FileExistsError) as told:
        far.agent("n").mkdir()
    assert told.value.errno == errno.EEXIST
    assert far.shell("cat n/spec").stdout == UPPER
    assert far.shell("echo hi > n/in").returncode == 0
    far.until_await("n")
    assert far.shell("cat n/out").stdout == "HI\n"
    assert far.shell("ls").stdout.split() == ["list", "n"]
    assert far.shell("rmdir n").returncode != 0
    far.shell("echo stop > n/ctl")
    wait_for(lambda: far.shell("cat n/status").stdout == "stopped\n", "stopped")
    assert far.shell("rmdir n").returncode == 0
    assert far.shell("ls").stdout == "list\n"


def test_ordinary_files_are_there_from_afar(far: Far) -> None:
    home, tasks = far.tree.home / "tasks", far.mount / "tasks"
    done = far.shell("""
        cd ../tasks && set -e
        mkdir -p new/deep; echo one > new/.t; mv new/.t new/t; echo two >> new/t; sed -i s/one/1/ new/t
        cp -p new/t new/deep/t; ln -s t new/s; cat new/s; ls new; rm new/s; chmod 640 new/t; stat -c %a new/t
    """)
    assert (done.returncode, done.stdout) == (0, "1\ntwo\ndeep\ns\nt\n640\n"), done.stderr
    assert (home / "new/t").read_text() == (home / "new/deep/t").read_text() == "1\ntwo\n"
    (home / "new/t").write_text("changed in HOME, and longer")
    assert (tasks / "new/t").read_text() == "changed in HOME, and longer"
    (home / "new/u").write_text("x")
    assert sorted(os.listdir(tasks / "new")) == ["deep", "t", "u"]
    fd = os.open(tasks / "new/t", os.O_WRONLY)
    os.write(fd, b"C")
    os.fsync(fd)
    assert (home / "new/t").read_text()[:7] == "Changed"
    os.close(fd)
    assert far.shell("echo x > ../log/new").returncode != 0
    assert far.shell("rm -r ../tasks/new; ls -A ../tasks").stdout == ""
    assert os.listdir(home) == []


def test_a_killed_mount_daemon_is_an_error_there_and_the_next_one_serves(far: Far) -> None:
    far.tree.make("e", UPPER)
    far.shell("echo one > e/inbox/k1")
    far.until_await("e")
    far.tree.kill("mount")
    with pytest.raises(OSError, match="e/inbox/k2"):
        (far.agent("e") / "inbox" / "k2").write_text("two")
    far.tree.up()
    wait_for((far.agent("e") / "status").exists, "it is served again")
    assert far.shell("cat e/status").stdout == "await\n"
    assert far.shell("cat e/inbox/k1").stdout.endswith("\n\nONE\n")
    assert far.shell("echo two > e/inbox/k2").returncode == 0
    far.until_await("e")
    assert far.shell("cat e/inbox/k2").stdout.endswith("\n\nTWO\n")


def test_an_agent_is_followed_from_afar(far: Far) -> None:
    """poll(2) says readable at all times there: what is new is read all the same, and once."""
    agent = far.tree.make("followed", UPPER)
    with following(far.tree, "followed", "--all", "--json", mount=far.mount) as follower:
        wait_for(lambda: opened(follower, far.agent("followed")), "it follows")
        for n in range(3):
            (agent / f"inbox/k{n}").write_text("x")
            assert far.tree.ended("followed", f"k{n}")[0] == "done"
            follower.said(f'"id":"k{n}","how":"done"')
        seqs = [event.seq for event in follower.events()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert follower.end() == 0

"""Guarantee 2: one open to its last close is one prompt, byte for byte, whoever writes it and however."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.living import Tree, wait_for
from tests.mount.clients import (
    PROMPT_MAX,
    SHELLS,
    answers,
    ask,
    busy,
    error,
    events,
    fresh,
    ids,
    needs,
    noise,
    put,
    put_all,
    refused,
    word,
)

ONE_PROMPT = {
    "echo": ("echo hello > in", b"hello\n"),
    "printf": (r"printf 'a\nb\nc\n' > in", b"a\nb\nc\n"),
    "no newline": ("printf hello > in", b"hello"),
    "append": ("echo hello >> in", b"hello\n"),
    "redirected group": ("{ cat A; cat B; } > in", b"aaa\nbbb\n"),
    "appended group": ("{ cat A; cat B; } >> in", b"aaa\nbbb\n"),
    "children between builtins": ("(echo a; /bin/true; echo b) > in", b"a\nb\n"),
    "cat": ("cat > in < BIG", b"BIG"),
    "pipe": ("cat A B | cat > in", b"aaa\nbbb\n"),
    "here document": ("cat > in <<END\none\ntwo\nEND", b"one\ntwo\n"),
    "tee": ("tee in < BIG > /dev/null", b"BIG"),
    "tee -a": ("tee -a in < BIG > /dev/null", b"BIG"),
    "dd bs=1": ("dd if=A of=in bs=1 status=none", b"aaa\n"),
    "dd bs=4M": ("dd if=BIG of=in bs=4M status=none", b"BIG"),
    "dd conv=fsync": ("dd if=BIG of=in bs=64k conv=fsync,notrunc status=none", b"BIG"),
    "dd oflag=append": ("dd if=BIG of=in bs=64k oflag=append conv=notrunc status=none", b"BIG"),
    "cp": ("cp BIG in", b"BIG"),
    "cp -p": ("cp -p A in", b"aaa\n"),
    "python": ('python3 -c \'open("in", "w").write("x" * 20000)\'', b"x" * 20000),
    "python append": ('python3 -c \'open("in", "a").write("x")\'', b"x"),
    "descriptor": ("exec 3> in; echo a >&3; echo b >&3; /bin/echo c >&3; exec 3>&-", b"a\nb\nc\n"),
    "appending descriptor": ("exec 3>> in; echo a >&3; /bin/echo b >&3; exec 3>&-", b"a\nb\n"),
    "last close by a child": (
        "exec 3> in; { while [ ! -e GO ]; do :; done; echo late >&3; } & echo early >&3; exec 3>&-; : > GO; wait",
        b"early\nlate\n",
    ),
}


@pytest.fixture(scope="module")
def ground(shared: Tree) -> Path:
    """A directory with files to send."""
    path = shared.home.parent / "files"
    path.mkdir()
    (path / "A").write_text("aaa\n")
    (path / "B").write_text("bbb\n")
    (path / "BIG").write_bytes(noise(3_000_000))
    return path


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("how", ONE_PROMPT)
def test_it_is_one_prompt(shared: Tree, ground: Path, base: Path, shell: str, how: str) -> None:
    script, wanted = ONE_PROMPT[how]
    agent = fresh(shared)
    for file in ("A", "B", "BIG"):
        script = script.replace(f" {file}", f" {ground}/{file}").replace(f"={file}", f"={ground}/{file}")
    script = script.replace("GO", f"{base}/go")
    shared.shell(f"cd {agent.name}; {script}", shell)
    assert answers(shared, agent) == [(ground / "BIG").read_bytes() if wanted == b"BIG" else wanted]


def test_a_descriptor_may_be_opened_for_reading_too(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_RDWR)
    os.write(fd, b"x")
    assert os.pread(fd, 10, 0) == b""
    os.close(fd)
    assert answers(shared, agent) == [b"x"]
    assert (agent / "in").read_bytes() == b""


def test_vim_writes_one_prompt(shared: Tree) -> None:
    """What vim does once its swap file was refused (facts, section 11)."""
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY | os.O_CREAT, 0o644)
    os.ftruncate(fd, 0)
    os.write(fd, b"typed\n")
    os.fsync(fd)
    os.fchmod(fd, 0o600)
    os.close(fd)
    assert answers(shared, agent) == [b"typed\n"]


def test_vim_itself(shared: Tree) -> None:
    """It takes longer than the second by which vim tells that somebody else wrote its file; other agents go on."""
    needs("vim")
    agent, other = fresh(shared), fresh(shared)
    typing = f"vim -u NONE -es -c 'normal ityped' -c 'sleep 2100m' -c 'wq!' {agent.name}/in < /dev/null & "
    talking = f"for i in 1 2 3 4 5 6 7 8 9; do echo $i > {other.name}/in; sleep 0.25; done; wait"
    shared.shell(typing + talking)
    assert answers(shared, agent) == [b"typed\n"]


def test_what_others_do_does_not_touch_in_or_spec(shared: Tree) -> None:
    """An editor refuses to write a file that it believes somebody else wrote meanwhile."""
    agent = fresh(shared)
    before = [(agent / name).stat().st_mtime_ns for name in ("in", "spec")]
    other = fresh(shared)
    put(other / "in", b"x")
    assert answers(shared, other) == [b"x"]
    put(agent / "in", b"y")
    assert answers(shared, agent) == [b"y"]
    assert [(agent / name).stat().st_mtime_ns for name in ("in", "spec")] == before
    assert (agent / "status").stat().st_mtime_ns > before[0]


def test_tee_reaches_every_agent(shared: Tree, ground: Path) -> None:
    agents = [fresh(shared) for _ in range(4)]
    files = " ".join(f"{agent.name}/in" for agent in agents)
    shared.shell(f"tee {files} < {ground}/BIG > /dev/null")
    for agent in agents:
        assert answers(shared, agent) == [(ground / "BIG").read_bytes()]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_open_is_a_prompt_and_their_order_is_kept(shared: Tree, shell: str) -> None:
    agent = fresh(shared)
    shared.shell(f"cd {agent.name}; for i in 1 2 3 4 5; do echo $i > in; echo +$i >> in; done", shell)
    assert b"".join(answers(shared, agent)) == b"1\n+1\n2\n+2\n3\n+3\n4\n+4\n5\n+5\n"


NOTHING = {
    "empty redirection": ": > in",
    "empty append": ": >> in",
    "touch": "touch in",
    "truncate": "truncate -s 0 in",
    "longer": "truncate -s 5 in",
    "empty printf": "printf '' > in",
    "empty file": "cat /dev/null > in",
    "empty copy": "cp /dev/null in",
    "open and close": "exec 3> in; exec 3>&-",
    "empty dd": "dd if=/dev/null of=in status=none",
    "failing command": "/bin/false > in || :",
    "chmod": "chmod 600 in",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_written_is_no_prompt(shared: Tree, shell: str) -> None:
    agent = fresh(shared)
    for how, script in NOTHING.items():
        done = shared.shell(f"cd {agent.name}; {script}", shell)
        assert (done.stderr, word(agent), ids(agent)) == ("", "await", []), how
    assert ask(shared, agent, b"something") == b"something"
    assert answers(shared, agent) == [b"something"]


@pytest.mark.parametrize("size", [1, 4096, 128 * 1024 + 1, 1 << 20, PROMPT_MAX])
def test_every_size_is_exact(shared: Tree, size: int) -> None:
    agent = fresh(shared)
    data = noise(size)
    assert ask(shared, agent, data) == data
    assert answers(shared, agent) == [data]


TOO_BIG = PROMPT_MAX + 1


@pytest.mark.parametrize(
    "program",
    [
        "cat FILE > in",
        "cat FILE >> in",
        "cp FILE in",
        "dd if=FILE of=in bs=1M status=none",
        "dd if=FILE of=in bs=64M status=none",
        "tee in < FILE > /dev/null",
    ],
)
def test_more_than_16_mib_is_refused_by_every_program(shared: Tree, base: Path, program: str) -> None:
    agent = fresh(shared)
    (base / "file").write_bytes(bytes(TOO_BIG))
    done = shared.shell(f"cd {agent.name}; {program.replace('FILE', str(base / 'file'))}", check=False)
    assert done.returncode != 0
    assert "File too large" in done.stderr
    assert "16 MiB" in error(agent)
    assert (word(agent), ids(agent)) == ("await", [])
    assert ask(shared, agent, b"next") == b"next"
    assert answers(shared, agent) == [b"next"]


def test_more_than_16_mib_is_efbig_for_one_long_write(shared: Tree) -> None:
    """The kernel splits it; what it took before the refusal is no success, and the errno of the rest says why."""
    agent = fresh(shared)
    with refused(errno.EFBIG):
        put(agent / "in", bytes(TOO_BIG))
    assert (word(agent), ids(agent)) == ("await", [])
    assert ask(shared, agent, b"next") == b"next"


def test_many_small_writes_reach_the_limit_too(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    put_all(fd, bytes(PROMPT_MAX - 1))
    assert os.write(fd, b"x") == 1
    with refused(errno.EFBIG):
        os.write(fd, b"x")
    os.close(fd)
    assert (word(agent), ids(agent)) == ("await", [])


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\n",
        b" ",
        b"a\0b\0",
        b"dos\r\nlines\r\n",
        b"no newline at the end",
        b"\xff\xfe invalid \xc3\x28 \xed\xa0\x80 \xf8",
        "caf\u00e9 \u2028 \u2029 \ufeff \U0001f600".encode(),
        b"\x1b[200~pasted\x1b[201~\x03\x04 keys",
        b'{"type":"control_request","request":{"subtype":"interrupt"}}\n{"type":"user"}\n',
        bytes(range(256)) * 40,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_bytes_are_kept(shared: Tree, data: bytes) -> None:
    agent = fresh(shared)
    assert ask(shared, agent, data) == data
    assert answers(shared, agent) == [data]


# -- from front to back ----------------------------------------------------------------------------------------------


def test_the_first_write_sets_the_base(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    os.pwrite(fd, b"one ", 1000)
    os.pwrite(fd, b"two", 1004)
    os.close(fd)
    assert answers(shared, agent) == [b"one two"]


@pytest.mark.parametrize("offset", [0, 2, 4, 100])
def test_a_write_that_does_not_follow_on_is_einval_and_nothing_is_sent(shared: Tree, offset: int) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    os.pwrite(fd, b"one", 0)
    assert word(agent) == "running"
    with refused(errno.EINVAL):
        os.pwrite(fd, b"two", offset)
    assert "front to back" in error(agent)
    assert word(agent) == "await"
    os.close(fd)
    assert (word(agent), ids(agent)) == ("await", [])
    assert ask(shared, agent, b"next") == b"next"
    assert answers(shared, agent) == [b"next"]


def test_an_appending_handle_ignores_offsets(shared: Tree) -> None:
    agent = fresh(shared)
    for _ in range(2):
        fd = os.open(agent / "in", os.O_WRONLY | os.O_APPEND)
        for text, offset in ((b"one ", 500), (b"two ", 3), (b"three", 0)):
            os.pwrite(fd, text, offset)
        os.close(fd)
    assert answers(shared, agent) == [b"one two three"] * 2


def test_a_refused_write_spoils_the_handle(shared: Tree) -> None:
    """Also when the next write would follow on, through another descriptor, after a flush."""
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    other = os.dup(fd)
    os.pwrite(fd, b"one", 0)
    os.fsync(fd)
    with refused(errno.EINVAL):
        os.pwrite(fd, b"two", 77)
    with refused(errno.EINVAL, errno.ESTALE):
        os.pwrite(other, b"two", 3)
    os.close(fd)
    with refused(errno.EINVAL, errno.ESTALE):
        os.pwrite(other, b"two", 0)
    os.close(other)
    assert (word(agent), ids(agent)) == ("await", [])
    assert ask(shared, agent, b"next") == b"next"
    assert answers(shared, agent) == [b"next"]
    assert list((shared.home / "agents" / agent.name / "orders/tmp").iterdir()) == []


# -- the first byte --------------------------------------------------------------------------------------------------


def test_the_first_byte_leaves_await_and_an_open_does_not(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    assert word(agent) == "await"
    os.write(fd, b"x")
    assert word(agent) == "running"
    assert shared.stat(agent.name)["arriving"] == "1"
    assert (agent / "wait").read_text() == ""
    os.close(fd)
    assert answers(shared, agent) == [b"x"]


def test_it_is_not_given_before_the_last_close(shared: Tree) -> None:
    """A handle that stays open does not hold up the prompts of others."""
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    os.write(fd, b"slow")
    os.fsync(fd)
    put(agent / "inbox/quick", b"quick")
    assert shared.ended(agent.name, "quick") == ("done", b"quick")
    assert (word(agent), shared.stat(agent.name)["turn"]) == ("running", "1")
    os.close(fd)
    assert answers(shared, agent) == [b"quick", b"slow"]


# -- several writers -------------------------------------------------------------------------------------------------


def test_fifty_interleaved_handles_are_fifty_prompts(shared: Tree) -> None:
    """Chunks of all writers alternate, in an order that chance decides; none sees another's."""
    agent = fresh(shared)
    chance = random.Random(1)
    fds = [os.open(agent / "in", os.O_WRONLY | (os.O_APPEND if n % 2 else 0)) for n in range(50)]
    chunks = [(n, k) for n in range(50) for k in range(8)]
    chance.shuffle(chunks)
    done = [b""] * 50
    for n, _ in chunks:
        data = chance.randbytes(chance.randrange(1, 30_000))
        os.write(fds[n], data)
        done[n] += data
    chance.shuffle(fds)
    for fd in fds:
        os.close(fd)
    assert sorted(answers(shared, agent)) == sorted(done)


@pytest.mark.soak
@pytest.mark.parametrize("shell", SHELLS)
def test_fifty_processes_at_once(shared: Tree, soak: bool, shell: str) -> None:
    """Each sends prompts of many writes by many children; all arrive once, and in order for each writer."""
    agent, each = fresh(shared), 20 if soak else 1
    one = '{ echo "$i $n 0"; for k in 1 2 3 4 5 6 7 8; do echo "$i $n $k"; done; /bin/echo "$i $n 9"; } > in'
    shared.shell(
        f"cd {agent.name}; for i in $(seq 50); do {{ for n in $(seq {each}); do {one}; done; }} & done; wait", shell
    )
    found = [answer.decode() for answer in answers(shared, agent)]
    wanted = {(i, n): "".join(f"{i} {n} {k}\n" for k in range(10)) for i in range(1, 51) for n in range(1, each + 1)}
    assert sorted(found) == sorted(wanted.values())
    for i in range(1, 51):
        assert [text for text in found if text.startswith(f"{i} ")] == [wanted[i, n] for n in range(1, each + 1)]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_writer_that_dies_has_sent_what_it_wrote(shared: Tree, shell: str, number: signal.Signals) -> None:
    agent = fresh(shared)
    script = f"exec > {agent}/in; echo first; /bin/echo second; exec sleep 600"
    with subprocess.Popen([shell, "-c", script]) as writer:
        wait_for(lambda: "sleep" in Path(f"/proc/{writer.pid}/comm").read_text(), "it wrote")
        assert word(agent) == "running"
        writer.send_signal(number)
    assert answers(shared, agent) == [b"first\nsecond\n"]


# -- what is left of it ----------------------------------------------------------------------------------------------


def test_a_prompt_of_in_has_a_receipt_under_an_id_made_for_it(shared: Tree) -> None:
    agent = busy(shared)
    shared.shell(f"echo queued > {agent.name}/in")
    (id,) = set(ids(agent)) - {"first"}
    head, answer = shared.receipt(agent.name, id)
    assert (head["receipt"], head["id"], answer) == ("queued", id, b"")
    os.unlink(agent / "inbox" / id)
    (agent / "ctl").write_text("interrupt\n")
    assert shared.settle(agent.name) == "await"
    assert [event["id"] for event in events(agent) if event["kind"] == "prompt-given"] == ["first"]

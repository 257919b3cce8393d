"""`spec` and `out`: text that becomes current as a whole at each flush, and who may replace it when."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.living import Tree, wait_for
from tests.mount.clients import (
    ECHO,
    ORDERS,
    PROMPT_MAX,
    SHELLS,
    answers,
    ask,
    busy,
    error,
    exec_spec,
    fate,
    fresh,
    gated,
    ids,
    needs,
    noise,
    put,
    refused,
    said,
    word,
)

UPPER = exec_spec("tr", "a-z", "A-Z")


def flush(fd: int) -> None:
    """What close(2) of one descriptor of several does, and a child that exits."""
    os.close(os.dup(fd))


def stop(tree: Tree, agent: Path) -> None:
    """Stop an agent."""
    (agent / "ctl").write_text("stop\n")
    assert tree.settle(agent.name) == "stopped"


def start(tree: Tree, agent: Path, verb: str = "start") -> str:
    """Start an agent; the word it settles with."""
    (agent / "ctl").write_text(f"{verb}\n")
    return tree.settle(agent.name)


# -- spec: writing ---------------------------------------------------------------------------------------------------

WAYS = {
    "here document": 'cat > spec <<\'END\'\nbackend = "exec"\nargv = ["cat"]\nEND',
    "cp": "cp FILE spec",
    "cat": "cat FILE > spec",
    "dd": "dd if=FILE of=spec bs=1 status=none",
    "tee": "tee spec < FILE > /dev/null",
    "printf": r"""printf 'backend = "exec"\nargv = ["cat"]\n' > spec""",
    "echoes": """{ echo 'backend = "exec"'; echo 'argv = ["cat"]'; } > spec""",
    "children": """{ /bin/echo 'backend = "exec"'; /bin/echo 'argv = ["cat"]'; } > spec""",
    "appending": """echo 'argv = ["cat"]' > spec; echo 'backend = "exec"' >> spec""",
    "python": 'python3 -c \'open("spec", "w").write(open("FILE").read())\'',
    "dd in place": "cp FILE spec; printf 'tac' | dd of=spec bs=1 seek=27 conv=notrunc status=none; cp FILE spec",
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("how", WAYS)
def test_a_spec_is_written_by_any_program(shared: Tree, base: Path, how: str, shell: str) -> None:
    agent = shared.agent(f"s-{how.replace(' ', '-')}-{shell}")
    agent.mkdir()
    (base / "file").write_text('backend = "exec"\nargv = ["cat"]\n')
    done = shared.shell(f"cd {agent.name}; {WAYS[how].replace('FILE', str(base / 'file'))}", shell)
    assert done.stderr == ""
    assert sorted((agent / "spec").read_text().splitlines()) == ['argv = ["cat"]', 'backend = "exec"']
    assert ask(shared, agent, b"x") == b"x"


def test_cp_clones_a_spec(shared: Tree) -> None:
    one, two = fresh(shared, UPPER), shared.agent("clone")
    two.mkdir()
    assert ask(shared, one, b"abc") == b"ABC"
    shared.shell(f"cp {one.name}/spec {two.name}/spec")
    assert (two / "spec").read_bytes() == (one / "spec").read_bytes()
    assert ask(shared, two, b"abc") == b"ABC"


def test_a_spec_can_be_rewritten_until_the_first_start_and_while_stopped(shared: Tree) -> None:
    agent = fresh(shared, UPPER)
    (agent / "spec").write_text(ECHO)
    assert ask(shared, agent, b"abc") == b"abc"
    with refused(errno.EBUSY):
        os.close(os.open(agent / "spec", os.O_WRONLY))
    assert "stopped" in error(agent)
    assert (agent / "spec").read_text() == ECHO
    done = shared.shell(f"echo x > {agent.name}/spec", check=False)
    assert "busy" in done.stderr
    stop(shared, agent)
    (agent / "spec").write_text(UPPER)
    assert start(shared, agent) == "await"
    assert ask(shared, agent, b"abc") == b"ABC"


def test_a_running_agents_spec_is_ebusy(shared: Tree) -> None:
    agent = busy(shared)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        with refused(errno.EBUSY):
            os.close(os.open(agent / "spec", flags))
    assert "begun" in (agent / "spec").read_text()


WRONG = {
    "unknown key": ('backend = "exec"\nargv = ["cat"]\ncolour = "red"\n', "colour", 3),
    "impossible value": ('argv = ["cat"]\n\nbackend = "none"\n', "backend", 3),
    "wrong type": ("argv = 5\n", "argv", 1),
    "relative cwd": ('cwd = "here"\n', "cwd", 1),
    "bad time": ('turn_timeout = "soon"\n', "turn_timeout", 1),
    "bad name": ('env = ["A=b"]\n', "env", 1),
    "not kept yet": ("# comment\nbudget_usd = 5\n", "budget_usd", 2),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_spec_is_einval_at_write_and_names_key_and_line(shared: Tree, base: Path, how: str) -> None:
    text, key, line = WRONG[how]
    agent = fresh(shared)
    fd = os.open(agent / "spec", os.O_WRONLY | os.O_TRUNC)
    with refused(errno.EINVAL):
        os.write(fd, text.encode())
    os.close(fd)
    assert key in error(agent)
    assert f"line {line}:" in error(agent)
    assert (agent / "spec").read_text() == ECHO
    (base / "file").write_text(text)
    done = shared.shell(f"cat {base}/file > {agent.name}/spec", check=False)
    assert (done.returncode, "Invalid argument" in done.stderr) == (1, True)
    assert ask(shared, agent, b"x") == b"x"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('backend = "exec"\nargv = ["ca', "line 2"),
        ('backend = "exec"\nargv = ["cat"]\n[broken\n', "line 3"),
        ("not TOML at all\n", "line 1"),
    ],
)
def test_a_half_written_spec_is_kept_judged_at_the_flush_and_start_is_refused(
    shared: Tree, text: str, named: str
) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "spec", os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text.encode())
    assert error(agent) == ""
    os.close(fd)
    assert (agent / "spec").read_text() == text
    assert named in error(agent)
    put(agent / "inbox/k1", b"x")
    assert shared.settle(agent.name) == "failed"
    assert shared.stat(agent.name)["reason"] == "config"
    assert named in error(agent)
    assert fate(agent, "k1") == "queued"
    with refused(errno.EHOSTDOWN):
        put(agent / "in", b"x")
    assert "restart" in error(agent)
    (agent / "spec").write_text(ECHO)
    assert start(shared, agent, "restart") == "await"
    assert shared.ended(agent.name, "k1") == ("done", b"x")


def test_a_half_written_spec_may_be_finished_by_the_same_writer(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "spec", os.O_WRONLY | os.O_TRUNC)
    for piece in (b'backend = "ex', b'ec"\nargv = ["t', b'r", "a-z", "A-Z"]\n'):
        os.write(fd, piece)
        flush(fd)
    os.close(fd)
    assert (agent / "spec").read_text() == UPPER
    assert ask(shared, agent, b"abc") == b"ABC"


def test_a_spec_is_current_when_close_returns(shared: Tree) -> None:
    agent = shared.agent("current")
    agent.mkdir()
    lines = shared.shell(
        f"cd {agent.name}; for i in $(seq 50); do echo \"model = '$i'\" > spec; cat spec; stat -c %s spec; done"
    ).stdout.splitlines()
    assert lines[0::2] == [f"model = '{n}'" for n in range(1, 51)]
    assert lines[1::2] == [str(len(f"model = '{n}'\n")) for n in range(1, 51)]


def test_readers_of_spec_see_whole_texts(shared: Tree) -> None:
    agent = shared.agent("whole")
    agent.mkdir()
    texts = [f"model = '{c * 30_000}'\n".encode() for c in "abc"]
    put(agent / "spec", texts[0])
    assert whole_readers(agent / "spec", lambda n: put(agent / "spec", texts[n % 3])) <= set(texts)


# -- spec: editors ---------------------------------------------------------------------------------------------------


def test_sed_i_is_refused_cleanly(shared: Tree) -> None:
    agent = fresh(shared)
    done = shared.shell(f"cd {agent.name}; sed -i s/cat/tac/ spec", check=False)
    assert (done.returncode != 0, "Operation not permitted" in done.stderr) == (True, True)
    assert (agent / "spec").read_text() == ECHO


def test_what_vim_does_to_a_spec(shared: Tree) -> None:
    """It writes in place: the file is emptied, written, synced, and its mode set (facts, section 11)."""
    agent = fresh(shared)
    fd = os.open(agent / "spec", os.O_WRONLY | os.O_CREAT, 0o600)
    os.ftruncate(fd, 0)
    os.write(fd, UPPER.encode())
    os.fsync(fd)
    os.fchmod(fd, 0o600)
    os.close(fd)
    assert (agent / "spec").read_text() == UPPER
    assert ask(shared, agent, b"abc") == b"ABC"


def test_vim_itself_edits_a_spec(shared: Tree) -> None:
    needs("vim")
    agent = fresh(shared)
    shared.shell(f"vim -u NONE -es -c '%s/cat/tac/' -c 'wq' {agent.name}/spec < /dev/null", check=False)
    assert (agent / "spec").read_text() == ECHO.replace("cat", "tac")
    assert ask(shared, agent, b"1\n2\n") == b"2\n1\n"


def test_truncating_by_name_and_by_descriptor(shared: Tree) -> None:
    """A shorter spec is the shorter text at the flush, not the old one's tail behind it."""
    agent = fresh(shared, ECHO + "# a long comment that must go\n")
    fd = os.open(agent / "spec", os.O_RDWR)
    assert os.pread(fd, 1000, 0) == (agent / "spec").read_bytes()
    os.pwrite(fd, ECHO.encode(), 0)
    os.ftruncate(fd, len(ECHO))
    os.close(fd)
    assert (agent / "spec").read_text() == ECHO
    assert ask(shared, agent, b"x") == b"x"


# -- spec: what cannot start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program", "PLAIN", "/etc"])
def test_a_missing_program_fails_with_config_and_a_sentence(shared: Tree, base: Path, program: str) -> None:
    (base / "plain").write_text("not to be run")
    program = program.replace("PLAIN", str(base / "plain"))
    agent = fresh(shared, exec_spec(program))
    put(agent / "inbox/k1", b"x")
    assert shared.settle(agent.name) == "failed"
    assert shared.stat(agent.name)["reason"] == "config"
    assert program in error(agent)
    assert "restart" in error(agent)
    assert (fate(agent, "k1"), shared.stat(agent.name)["turn"]) == ("queued", "0")
    (agent / "spec").write_text(ECHO)
    assert start(shared, agent, "restart") == "await"
    assert shared.ended(agent.name, "k1") == ("done", b"x")


def test_a_missing_cwd_fails_with_its_name_and_is_mended_by_restart(shared: Tree, base: Path) -> None:
    cwd = base / "there"
    agent = fresh(shared, exec_spec("sh", "-c", "cat; pwd", cwd=str(cwd)))
    put(agent / "inbox/k1", b"x ")
    assert shared.settle(agent.name) == "failed"
    assert shared.stat(agent.name)["reason"] == "cwd-missing"
    assert str(cwd) in error(agent)
    with refused(errno.EHOSTDOWN):
        put(agent / "in", b"x")
    assert start(shared, agent, "restart") == "failed"
    cwd.mkdir()
    assert start(shared, agent, "restart") == "await"
    assert shared.ended(agent.name, "k1") == ("done", f"x {cwd}\n".encode())


# -- out -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_whoever_writes_out_replaces_it(shared: Tree, shell: str) -> None:
    agent = fresh(shared)
    put(agent / "inbox/k1", b"the answer\n")
    shared.settle(agent.name)
    script = r"echo mine > out; cat out; printf 'a\nb\n' > out; cat out; tail -n 1 inbox/k1; cp spec out; cmp spec out"
    done = shared.shell(f"cd {agent.name}; {script}", shell)
    assert done.stdout == "mine\na\nb\nthe answer\n"
    assert (word(agent), ids(agent)) == ("await", ["k1"])
    assert shared.ended(agent.name, "k1") == ("done", b"the answer\n")
    assert (shared.home / "agents" / agent.name / "turns/1").read_bytes() == b"the answer\n"
    assert ask(shared, agent, b"next") == b"next"


def test_out_is_current_when_close_returns(shared: Tree) -> None:
    agent = fresh(shared)
    lines = shared.shell(
        f"cd {agent.name}; for i in $(seq 50); do echo $i > out; cat out; stat -c %s out; done"
    ).stdout.split()
    assert lines == [word for n in range(1, 51) for word in (str(n), str(len(str(n)) + 1))]


def test_each_flush_publishes_and_nothing_else_does(shared: Tree) -> None:
    agent = fresh(shared)
    ask(shared, agent, b"old")
    fd = os.open(agent / "out", os.O_WRONLY | os.O_TRUNC)
    assert (agent / "out").read_bytes() == b"old"
    os.write(fd, b"one ")
    assert (agent / "out").read_bytes() == b"old"
    flush(fd)
    assert (agent / "out").read_bytes() == b"one "
    os.write(fd, b"two ")
    os.write(fd, b"three")
    assert (agent / "out").read_bytes() == b"one "
    os.fsync(fd)
    assert (agent / "out").read_bytes() == b"one two three"
    (agent / "out").write_text("by another\n")
    flush(fd)
    os.close(fd)
    assert (agent / "out").read_text() == "by another\n"


def test_what_was_written_survives_a_new_start(tree: Tree) -> None:
    agent = tree.make("r1", ECHO)
    assert ask(tree, agent, b"answer") == b"answer"
    (agent / "out").write_text("mine\n")
    tree.kill("mount")
    tree.up()
    assert (agent / "out").read_text() == "mine\n"
    tree.kill("supervisor")
    (agent / "out").write_text("unseen\n")
    tree.down()
    tree.up()
    assert (agent / "out").read_text() == "unseen\n"
    assert ask(tree, agent, b"next") == b"next"


def whole_readers(path: Path, change: object, rounds: int = 60) -> set[bytes]:
    """What twelve readers, each in pieces of its own size, saw while `change(n)` ran so many times."""
    assert callable(change)
    over, seen, failures = threading.Event(), set[bytes](), list[BaseException]()

    def read(size: int) -> None:
        try:
            while not over.is_set():
                with open(path, "rb", buffering=0) as file:
                    for _ in range(2):
                        file.seek(0)
                        seen.add(b"".join(iter(lambda: file.read(size), b"")))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=read, args=(size,)) for size in [1000, 4096, 10_007, 131_072] * 3]
    for thread in threads:
        thread.start()
    try:
        for n in range(rounds):
            change(n)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(seen) > 1
    return seen


def test_readers_of_out_see_whole_texts(shared: Tree) -> None:
    """Old or new, never a mixture, while a client rewrites it in many writes."""
    agent = fresh(shared)
    texts = [bytes([c]) * (40_000 + 17_000 * c) for c in range(1, 5)]

    def change(n: int) -> None:
        fd = os.open(agent / "out", os.O_WRONLY | os.O_TRUNC)
        for k in range(0, len(texts[n % 4]), 9_000):
            os.write(fd, texts[n % 4][k : k + 9_000])
        os.close(fd)

    assert whole_readers(agent / "out", change) <= {b"", *texts}


def test_readers_of_out_see_whole_answers(shared: Tree) -> None:
    """The same while turns end and a client writes between them."""
    agent = fresh(shared)
    texts = [bytes([c]) * (40_000 + 17_000 * c) for c in range(1, 5)]

    def change(n: int) -> None:
        if n % 3:
            put(agent / "out", texts[n % 4])
        else:
            assert ask(shared, agent, texts[n % 4]) == texts[n % 4]

    assert whole_readers(agent / "out", change, 30) <= {b"", *texts}


def test_out_takes_16_mib(shared: Tree) -> None:
    agent = fresh(shared)
    data = noise(PROMPT_MAX)
    put(agent / "out", data)
    assert (agent / "out").read_bytes() == data
    with refused(errno.EFBIG):
        put(agent / "out", bytes(PROMPT_MAX + 1))
    assert (agent / "out").read_bytes() == data


# -- out: the agent's own --------------------------------------------------------------------------------------------

OUT = '"$ZOEFS_MOUNT/agents/$ZOEFS_AGENT/out"'


def record(tree: Tree, agent: Path, turn: int = 1) -> bytes:
    """What HOME keeps as the answer of a turn."""
    return (tree.home / "agents" / agent.name / "turns" / str(turn)).read_bytes()


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (f"echo own > {OUT}; echo remark", b"own\n"),
        (f"echo remark; echo first > {OUT}; echo own > {OUT}", b"own\n"),
        (f"cat > {OUT}; echo remark", b"the prompt"),
        (f'echo remark; python3 -c \'import os; print("own", file=open(os.path.expandvars({OUT}), "w"))\'', b"own\n"),
        (f"sh -c 'echo own > {OUT}' & wait; echo remark", b"own\n"),
    ],
)
def test_what_the_agent_wrote_to_its_own_out_is_its_answer(shared: Tree, script: str, answer: bytes) -> None:
    """In `out`, in `inbox/ID` and in HOME; the closing remark is in `chat`."""
    agent = fresh(shared, exec_spec("sh", "-c", script))
    put(agent / "inbox/k1", b"the prompt")
    assert shared.ended(agent.name, "k1") == ("done", answer)
    assert shared.settle(agent.name) == "await"
    assert (agent / "out").read_bytes() == record(shared, agent) == answer
    assert "remark\n" in (agent / "chat").read_text()
    (agent / "out").write_text("by somebody else\n")
    assert (agent / "out").read_text() == "by somebody else\n"
    assert shared.ended(agent.name, "k1") == ("done", answer)
    assert record(shared, agent) == answer


def test_it_is_current_during_the_turn_and_counts_for_a_failed_one_too(shared: Tree, base: Path) -> None:
    gate = base / "gate"
    gate.touch()
    script = f"echo own > {OUT}; while [ -e {gate} ]; do sleep 0.05; done; echo remark; exit 3"
    agent = fresh(shared, exec_spec("sh", "-c", script))
    put(agent / "inbox/k1", b"x")
    wait_for(lambda: (agent / "out").read_bytes() == b"own\n", "the agent wrote it")
    assert word(agent) == "running"
    gate.unlink()
    assert shared.ended(agent.name, "k1") == ("failed", b"own\n")
    shared.settle(agent.name)
    assert (agent / "out").read_bytes() == b"own\n"


def test_it_does_not_stay_for_the_next_turn(shared: Tree) -> None:
    script = f'[ {{turn}} = 2 ] || echo "own {{turn}}" > {OUT}; echo "remark {{turn}}"'
    agent = fresh(shared, exec_spec("sh", "-c", script))
    assert [ask(shared, agent, b"x") for _ in range(3)] == [b"own 1\n", b"remark 2\n", b"own 3\n"]
    assert answers(shared, agent) == [b"own 1\n", b"remark 2\n", b"own 3\n"]


def test_what_others_write_during_a_turn_is_not_its_answer(shared: Tree, base: Path) -> None:
    agent = fresh(shared, gated(base / "gate"))
    put(agent / "inbox/k1", b"answer\n")
    wait_for(lambda: fate(agent, "k1") in {"sent", "accepted"}, "it runs")
    shared.shell(f"echo mine > {agent.name}/out")
    assert (agent / "out").read_text() == "mine\n"
    (base / "gate").unlink()
    assert shared.ended(agent.name, "k1") == ("done", b"answer\n")
    shared.settle(agent.name)
    assert (agent / "out").read_bytes() == record(shared, agent) == b"answer\n"


def test_another_agents_out_is_not_its_answer(shared: Tree) -> None:
    """An agent that writes a peer's `out` replaces nothing of its own turn."""
    peer = fresh(shared)
    ask(shared, peer, b"peer")
    agent = fresh(shared, exec_spec("sh", "-c", f'echo meddled > "$ZOEFS_MOUNT/agents/{peer.name}/out"; echo own'))
    put(agent / "inbox/k1", b"x")
    assert shared.ended(agent.name, "k1") == ("done", b"own\n")
    assert answers(shared, peer) == [b"peer"]


@pytest.mark.parametrize(
    ("how", "out"), [("done", b"answer t\n"), ("fail", b""), ("half", b"half t\n"), ("hang", b"begun t\n")]
)
def test_out_belongs_to_the_last_turn_however_it_ended(shared: Tree, how: str, out: bytes) -> None:
    """Its whole answer, or what there was of it, or nothing; never that of the turn before."""
    agent = fresh(shared, ORDERS)
    assert ask(shared, agent, b"before done 0\n") == b"answer before\n"
    put(agent / "in", f"t {how} 0\n".encode())
    if how == "hang":
        wait_for(lambda: said(shared, agent) == out, "it has begun")
        (agent / "ctl").write_text("interrupt\n")
    assert shared.settle(agent.name) == "await"
    assert (agent / "out").read_bytes() == record(shared, agent, 2) == out
    ended = {"done": "done", "fail": "failed", "half": "failed", "hang": "interrupted"}
    assert shared.stat(agent.name)["last_turn"] == ended[how]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_program_that_dies_loses_its_turn_and_says_so(shared: Tree, number: signal.Signals) -> None:
    agent = fresh(shared, exec_spec("sh", "-c", f"echo half; kill -{int(number)} $$"))
    put(agent / "inbox/k1", b"x")
    assert shared.ended(agent.name, "k1") == ("lost", b"half\n")
    assert shared.settle(agent.name) == "await"
    assert shared.stat(agent.name)["last_turn"] == "lost"
    assert number.name in error(agent) or str(int(number)) in error(agent)

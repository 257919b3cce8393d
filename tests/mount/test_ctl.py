"""Guarantee 5 and the tree itself: verbs, keys, refusals that are loud and readable, names, and what may not be."""

from __future__ import annotations

import datetime
import errno
import os
import stat
import time
from pathlib import Path

import pytest

from tests.living import Tree, wait_for
from tests.mount.clients import (
    BUSY,
    ECHO,
    ORDERS,
    PROMPT_MAX,
    SHELLS,
    answers,
    ask,
    busy,
    clients,
    error,
    events,
    exec_spec,
    fate,
    fresh,
    gated,
    ids,
    put,
    refused,
    word,
)
from zoefs.contract.words import QUEUE_MAX


def tell(agent: Path, line: str) -> None:
    """One write to `ctl`; its OSError is the refusal."""
    fd = os.open(agent / "ctl", os.O_WRONLY)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def stopped(tree: Tree, agent: Path) -> Path:
    """The same agent, stopped."""
    tell(agent, "stop")
    assert tree.settle(agent.name) == "stopped"
    return agent


# -- verbs -----------------------------------------------------------------------------------------------------------

BAD = {
    "frobnicate": "the verbs are",
    "Stop": "the verbs are",
    "stop now": "stop takes nothing",
    "allow": "id of one ask",
    "#a/b stop": "a key is",
    "#key": "the verbs are",
    "# stop": "a key is",
    "\udcff": "UTF-8",
    "stop\0": "the verbs are",
}


@pytest.mark.parametrize("line", BAD, ids=ascii)
def test_a_bad_line_is_einval(shared: Tree, line: str) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "ctl", os.O_WRONLY)
    with refused(errno.EINVAL):
        os.write(fd, os.fsencode(line + "\n"))
    os.close(fd)
    assert BAD[line] in error(agent)
    assert word(agent) == "await"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_hears_the_refusal_of_a_verb(shared: Tree, shell: str) -> None:
    agent, begin = fresh(shared), time.time()
    done = shared.shell(f"echo frobnicate > {agent.name}/ctl", shell, check=False)
    assert done.returncode != 0
    assert "write error" in done.stderr or "I/O error" in done.stderr
    t, _, sentence = (agent / "error").read_text().partition(" ")
    assert begin - 0.01 <= datetime.datetime.fromisoformat(t).timestamp() <= time.time()
    assert sentence.startswith(f"{agent.name}: no verb 'frobnicate'; the verbs are start stop restart interrupt kill")


@pytest.mark.parametrize("line", ["allow x", "allow-always x", "deny x no", "compact", "reset-budget"])
def test_what_the_backend_cannot_is_eopnotsupp(shared: Tree, line: str) -> None:
    for agent in (fresh(shared), busy(shared), stopped(shared, fresh(shared))):
        with refused(errno.EOPNOTSUPP):
            tell(agent, line)
        assert "start stop restart interrupt kill" in error(agent)


def until_queued(agent: Path, ahead: int) -> None:
    """Wait until the steer s1 is a prompt with so many ahead of it."""
    said = f"receipt: queued\nid: s1\nahead: {ahead}\nnote: a steer that no running turn could take"
    wait_for(lambda: (agent / "inbox/s1").read_text().startswith(said), "the steer is queued")


def test_a_steer_that_no_turn_can_take_is_a_prompt_in_its_place(shared: Tree) -> None:
    agent = busy(shared, gated(shared.home.parent / "gate"))
    put(agent / "inbox/p1", b"first")
    tell(agent, "#s1 steer go  left")
    put(agent / "inbox/p2", b"last")
    until_queued(agent, 1)
    assert word(agent) == "running"
    with refused(errno.EEXIST):
        tell(agent, "#s1 steer again")
    (shared.home.parent / "gate").unlink()
    assert answers(shared, agent) == [b"go", b"first", b"go  left", b"last"]
    tell(agent, "steer right")
    assert shared.settle(agent.name) == "await"
    assert (agent / "out").read_bytes() == b"right"
    assert answers(shared, agent)[-1] == b"right"


def test_two_steers_of_one_write_are_two_prompts(shared: Tree) -> None:
    agent = busy(shared, gated(shared.home.parent / "gate"))
    tell(agent, "#s1 steer one\n#s2 steer two\nsteer three")
    wait_for(lambda: (agent / "inbox/s2").read_text().count("note: a steer"), "they are queued")
    assert fate(agent, "s1") == "queued"
    for id in ("s1", "s2"):
        with refused(errno.EEXIST):
            put(agent / "inbox" / id, b"again", os.O_EXCL)
    (shared.home.parent / "gate").unlink()
    assert answers(shared, agent) == [b"go", b"one", b"two", b"three"]


def test_a_waiting_steer_can_be_taken_back(shared: Tree) -> None:
    agent = busy(shared)
    tell(agent, "#s1 steer left")
    until_queued(agent, 0)
    (agent / "inbox/s1").unlink()
    wait_for(lambda: fate(agent, "s1") == "cancelled", "it is taken back")
    tell(agent, "interrupt")
    assert shared.settle(agent.name) == "await"


@pytest.mark.parametrize(
    ("state", "line"), [("running", "start"), ("stopped", "interrupt"), ("failed", "start"), ("failed", "interrupt")]
)
def test_the_wrong_status_is_ebusy_and_names_what_is_permitted(shared: Tree, state: str, line: str) -> None:
    agent = busy(shared) if state == "running" else fresh(shared)
    if state == "stopped":
        stopped(shared, agent)
    if state == "failed":
        (agent / "spec").write_text('backend = "exec"\nargv = ["/no/such/program"]\n')
        put(agent / "in", b"x")
        assert shared.settle(agent.name) == "failed"
    with refused(errno.EBUSY):
        tell(agent, line)
    permitted = error(agent).partition("permitted now: ")[2].split()
    assert "restart" in permitted
    assert line not in permitted
    assert word(agent) == state


def test_error_tells_the_newer_of_failure_and_refusal(shared: Tree) -> None:
    """Also where both happen within one millisecond, as they do for a program that waits and acts at once."""
    for _ in range(12):
        agent = fresh(shared, exec_spec("/no/such/program"))
        with open(agent / "ctl", "wb", buffering=0) as ctl, open(agent / "wait", "rb", buffering=0) as wait:
            put(agent / "in", b"x")
            while not (answer := os.pread(wait.fileno(), 100, 0)):
                pass
            assert answer == b"failed\n"
            with refused(errno.EBUSY):
                ctl.write(b"interrupt")
        assert "permitted now" in error(agent)


def test_several_lines_are_all_or_nothing(shared: Tree) -> None:
    agent = fresh(shared)
    for lines in ("stop\nfrobnicate\n", "stop\n\n#k1 stop\n#k1 start\n", "stop\ninterrupt\n", "#k1 stop\nallow x\n"):
        with refused(errno.EINVAL, errno.EBUSY, errno.EEXIST, errno.EOPNOTSUPP):
            tell(agent, lines)
        assert (shared.settle(agent.name), ids(agent)) == ("await", [])
    assert [event["kind"] for event in events(agent)] in ([], ["created"])
    tell(agent, "#k1 stop\n\n  start  \n#k2 stop")
    assert shared.settle(agent.name) == "stopped"
    assert [event["verb"] for event in events(agent) if event["kind"] == "verb-done"] == ["stop", "start", "stop"]
    assert (fate(agent, "k1"), fate(agent, "k2")) == ("done", "done")


def test_offsets_and_opens_do_not_matter(shared: Tree) -> None:
    agent = fresh(shared)
    for flags in (0, os.O_APPEND, os.O_TRUNC):
        fd = os.open(agent / "ctl", os.O_WRONLY | flags)
        os.pwrite(fd, b"stop\n", 77)
        assert shared.settle(agent.name) == "stopped"
        os.pwrite(fd, b"start\n", 0)
        assert shared.settle(agent.name) == "await"
        os.close(fd)
    shared.shell(f'cd {agent.name}; : > ctl; echo > ctl; truncate -s 0 ctl; [ -z "$(cat ctl)" ]')
    assert shared.settle(agent.name) == "await"


def test_a_verb_counts_when_write_returns_and_the_handle_is_open(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "ctl", os.O_WRONLY)
    for _ in range(10):
        os.write(fd, b"stop")
        assert shared.settle(agent.name) == "stopped"
        os.write(fd, b"start")
        assert shared.settle(agent.name) == "await"
    os.close(fd)


# -- keys ------------------------------------------------------------------------------------------------------------


def test_the_fate_of_a_keyed_verb_is_read_in_inbox(shared: Tree) -> None:
    agent = fresh(shared)
    shared.shell(f"echo '#k1 stop' > {agent.name}/ctl")
    assert fate(agent, "k1") in {"queued", "done"}
    assert shared.settle(agent.name) == "stopped"
    head, answer = shared.receipt(agent.name, "k1")
    assert (head["receipt"], head["id"], head["verb"], answer) == ("done", "k1", "stop", b"")
    assert "k1" in os.listdir(agent / "inbox")
    with refused(errno.EPERM):
        os.unlink(agent / "inbox/k1")


def test_a_key_is_used_once_and_shares_its_names_with_prompts(shared: Tree) -> None:
    agent = fresh(shared)
    tell(agent, "#k1 stop")
    for _ in range(2):
        with refused(errno.EEXIST):
            tell(agent, "#k1 start")
        assert "k1" in error(agent)
        with refused(errno.EEXIST):
            put(agent / "inbox/k1", b"x")
        assert shared.settle(agent.name) == "stopped"
    tell(agent, "start")
    assert ask(shared, agent, b"x") == b"x"
    put(agent / "inbox/p1", b"x")
    with refused(errno.EEXIST):
        tell(agent, "#p1 stop")
    assert shared.settle(agent.name) == "await"
    assert fate(agent, "p1") == "done"


def test_keys_and_sentences_survive_a_new_start(tree: Tree) -> None:
    agent = tree.make("r1", ECHO)
    tell(agent, "#k1 stop")
    assert tree.settle("r1") == "stopped"
    with refused(errno.EINVAL):
        tell(agent, "frobnicate")
    said = (agent / "error").read_text()
    tree.kill("mount")
    tree.up()
    assert ((agent / "error").read_text(), fate(agent, "k1")) == (said, "done")
    with refused(errno.EEXIST):
        tell(agent, "#k1 start")
    tree.down()
    tree.up()
    assert (tree.status("r1"), fate(agent, "k1")) == ("stopped", "done")
    with refused(errno.EEXIST):
        tell(agent, "#k1 start")


# -- prompts that are not accepted -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_a_stopped_agent_takes_no_prompt_and_says_start(shared: Tree, shell: str) -> None:
    agent = stopped(shared, fresh(shared))
    for script in ("echo x > in", "echo x >> in", "cat /etc/hostname > in", "echo x > inbox/k1", "cp /etc/hostname in"):
        done = shared.shell(f"cd {agent.name}; {script}", shell, check=False)
        assert done.returncode != 0, script
    assert "Host is down" in done.stderr
    assert f"{agent.name} is stopped" in error(agent)
    assert "start" in error(agent)
    with refused(errno.EHOSTDOWN):
        put(agent / "inbox/k1", b"x")
    assert ids(agent) == []
    tell(agent, "start")
    assert shared.settle(agent.name) == "await"
    assert ask(shared, agent, b"x") == b"x"


def test_a_prompt_still_arriving_at_the_stop_is_queued(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "in", os.O_WRONLY)
    os.write(fd, b"one ")
    stopped(shared, agent)
    os.write(fd, b"two")
    os.close(fd)
    assert (word(agent), shared.stat(agent.name)["queued"]) == ("stopped", "1")
    tell(agent, "start")
    assert answers(shared, agent) == [b"one two"]


def test_what_was_queued_at_the_stop_goes_on_at_start(shared: Tree) -> None:
    agent = busy(shared, ORDERS.replace("read -r", "cat > /dev/null; exec sleep 600; read -r", 1))
    for n in range(3):
        put(agent / "inbox" / f"k{n}", b"x")
    stopped(shared, agent)
    assert fate(agent, "first") == "cancelled"
    assert [fate(agent, f"k{n}") for n in range(3)] == ["queued"] * 3
    (agent / "spec").write_text(ECHO)
    tell(agent, "start")
    assert shared.settle(agent.name) == "await"
    assert [shared.receipt(agent.name, f"k{n}")[0]["turn"] for n in range(3)] == ["2", "3", "4"]


@pytest.mark.parametrize("line", ["stop", "kill"])
def test_stop_keeps_the_last_answer_and_nothing_runs_on(shared: Tree, base: Path, line: str) -> None:
    """Also what the program started in the background is gone."""
    script = f"echo $$ > {base}/pid; sleep 600 & echo $! >> {base}/pid; setsid sleep 600 & echo $! >> {base}/pid; wait"
    agent = fresh(shared)
    assert ask(shared, agent, b"kept") == b"kept"
    tell(agent, line)
    assert shared.settle(agent.name) == "stopped"
    assert (agent / "out").read_bytes() == b"kept"
    (agent / "spec").write_text(exec_spec("sh", "-c", script))
    tell(agent, "start")
    assert shared.settle(agent.name) == "await"
    put(agent / "inbox/k1", b"x")
    wait_for(lambda: (base / "pid").exists() and len((base / "pid").read_text().split()) == 3, "it runs")
    tell(agent, line)
    assert shared.settle(agent.name) == "stopped"
    assert not [pid for pid in (base / "pid").read_text().split() if Path(f"/proc/{pid}").exists()]
    assert (fate(agent, "k1"), shared.stat(agent.name)["last_turn"]) == ("cancelled", "interrupted")


def test_a_prompt_right_after_start_is_accepted(tree: Tree) -> None:
    """A ctl line acts when its write() returned: who said `start` need not wait before saying more."""
    agent = stopped(tree, tree.make("r1", ECHO))
    tree.kill("supervisor")
    tree.shell("cd r1; echo start > ctl && echo hello > in && echo hello > inbox/k1")
    tree.up()
    assert answers(tree, agent) == [b"hello\n"] * 2


def test_restart_ends_the_turn_and_goes_on(shared: Tree) -> None:
    agent = busy(shared)
    put(agent / "inbox/k1", b"next")
    tell(agent, "restart")
    wait_for(lambda: fate(agent, "k1") in {"sent", "accepted"}, "the next one runs")
    assert fate(agent, "first") == "cancelled"
    assert shared.stat(agent.name)["turn"] == "2"


@pytest.mark.soak
def test_the_queue_holds_a_thousand(shared: Tree) -> None:
    agent = busy(shared)
    for n in range(QUEUE_MAX):
        put(agent / "inbox" / f"k{n}", b"x")
    assert shared.stat(agent.name)["queued"] == str(QUEUE_MAX)
    for name in ("in", "inbox/more"):
        with refused(errno.EAGAIN):
            put(agent / name, b"x")
    put(agent / "inbox/.draft", b"x")
    with refused(errno.EAGAIN):
        os.rename(agent / "inbox/.draft", agent / "inbox/more")
    assert str(QUEUE_MAX) in error(agent)
    assert len(ids(agent)) == QUEUE_MAX + 1
    for shell in SHELLS:
        done = shared.shell(f"echo x > {agent.name}/in", shell, check=False)
        assert done.returncode != 0
    os.unlink(agent / "inbox/k0")
    os.rename(agent / "inbox/.draft", agent / "inbox/more")
    assert fate(agent, "more") == "queued"
    with refused(errno.EAGAIN):
        put(agent / "in", b"x")
    stopped(shared, agent)
    os.rmdir(agent)


def test_the_queue_holds_64_mib(shared: Tree) -> None:
    agent = busy(shared)
    for n in range(4):
        put(agent / "inbox" / f"k{n}", bytes(PROMPT_MAX))
    for name in ("in", "inbox/more"):
        with refused(errno.EAGAIN):
            put(agent / name, b"x")
    assert "64 MiB" in error(agent)
    put(agent / "inbox/.draft", b"x")
    with refused(errno.EAGAIN):
        os.rename(agent / "inbox/.draft", agent / "inbox/more")
    assert len(ids(agent)) == 5
    os.unlink(agent / "inbox/k0")
    os.rename(agent / "inbox/.draft", agent / "inbox/more")
    assert fate(agent, "more") == "queued"
    stopped(shared, agent)
    os.rmdir(agent)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "0", "_x", "A.b-c_D", "x" * 64, "in", "status", "help", "1.2.3"])
def test_good_names(shared: Tree, name: str) -> None:
    path = shared.agent(name)
    path.mkdir()
    assert name in os.listdir(shared.mount / "agents")
    assert word(path) == "await"
    path.rmdir()
    assert name not in os.listdir(shared.mount / "agents")
    assert not path.exists()


@pytest.mark.parametrize("name", [".x", "-x", "a b", "caf\u00e9", "x" * 65, "a:b", "a\n", "~", "a+b", "#a", "*"])
def test_bad_names_are_einval(shared: Tree, name: str) -> None:
    with refused(errno.EINVAL):
        shared.agent(name).mkdir()
    assert name not in os.listdir(shared.mount / "agents")


def test_list_is_no_name(shared: Tree) -> None:
    with refused(errno.EEXIST, errno.EINVAL):
        shared.agent("list").mkdir()
    assert (shared.mount / "agents/list").is_file()


def test_mkdir_of_what_exists_is_loud(shared: Tree) -> None:
    shared.agent("Abc").mkdir()
    for name in ("Abc", "abc", "ABC", "aBc"):
        with refused(errno.EEXIST):
            shared.agent(name).mkdir()
    done = shared.shell("mkdir Abc", check=False)
    assert "File exists" in done.stderr
    assert [name for name in os.listdir(shared.mount / "agents") if name.lower() == "abc"] == ["Abc"]


def test_of_two_mkdirs_at_once_one_makes_it(shared: Tree) -> None:
    with clients(2) as two:
        for n in range(20):
            names = (f"race{n}", f"race{n}" if n % 2 else f"RACE{n}")
            said = two.at_once([f"os.mkdir(r'{shared.agent(name)}')" for name in names])
            assert sorted(said) == ["EEXIST", "ok"]


def test_the_list_is_a_snapshot_of_all(shared: Tree) -> None:
    one, two = fresh(shared, ORDERS), busy(shared)
    ask(shared, one, b"t1 done 0\n")
    put(two / "inbox/waits", b"x")
    lines = [line.split("\t") for line in (shared.mount / "agents/list").read_text().splitlines()]
    assert lines[0] == ["name", "status", "turn", "queued", "backend", "cost_usd", "since", "cwd"]
    rows = {line[0]: line for line in lines[1:]}
    assert set(rows) == set(os.listdir(shared.mount / "agents")) - {"list"}
    assert rows[one.name][1:6] == ["await", "1", "0", "exec", "0"]
    assert rows[two.name][1:6] == ["running", "1", "1", "exec", "0"]
    assert all(len(row) == len(lines[0]) for row in lines)


# -- what may not be -------------------------------------------------------------------------------------------------

FORBIDDEN = {
    "mkdir": "mkdir new",
    "create": "set -C; echo x > new",
    "copy into": "cp /etc/hostname new",
    "symlink": "ln -s /etc/hostname new",
    "hard link": "ln LINKED new",
    "fifo": "mkfifo new",
    "node": "mknod new c 1 3",
    "move in": "mv FILE new",
}


@pytest.mark.parametrize("place", [".", "agents", "agents/NAME", "agents/NAME/inbox"])
def test_nothing_else_can_be_made(shared: Tree, base: Path, place: str) -> None:
    """Always EPERM, in words that do not read like a bug (ENOSYS would)."""
    agent = fresh(shared)
    where = shared.mount / place.replace("NAME", agent.name)
    (base / "file").write_text("x")
    allowed = {"agents": {"mkdir"}, "agents/NAME/inbox": {"create", "copy into", "move in"}}.get(place, set())
    linked = {"agents": "list", "agents/NAME/inbox": ".d"}.get(place, "help" if place == "." else "spec")
    if place.endswith("inbox"):
        put(where / ".d", b"x")
    for how, script in FORBIDDEN.items():
        if how not in allowed:
            script = script.replace("FILE", str(base / "file")).replace("LINKED", linked)
            done = shared.shell(f"cd {where}; {script}", check=False)
            assert (done.returncode != 0, "Operation not permitted" in done.stderr) == (True, True), (how, done.stderr)
            assert not (where / "new").exists()


def test_nothing_can_be_renamed_or_removed(shared: Tree) -> None:
    agent = fresh(shared)
    for script in (
        f"mv {agent.name} other",
        "mv list other",
        f"mv {agent.name}/out {agent.name}/other",
        f"rm -f {agent.name}/in",
        f"rm -f {agent.name}/spec",
        "rm -f list",
        "rm -f ../help",
        f"rmdir {agent.name}/inbox",
        "rmdir ../agents",
        "mv ../agents ../other",
    ):
        done = shared.shell(script, check=False)
        assert (done.returncode != 0, "not permitted" in done.stderr or "busy" in done.stderr) == (True, True), script
        assert "not implemented" not in done.stderr
    assert sorted(os.listdir(agent)) == sorted(
        "in inbox out status ctl spec session stat error events chat ask".split()
    )


@pytest.mark.parametrize("name", ["status", "stat", "session", "events", "chat", "ask", "error", "wait"])
def test_what_is_read_only(shared: Tree, name: str) -> None:
    """Root is not bound by mode bits, so the mount itself says no."""
    agent = fresh(shared)
    assert not (agent / name).stat().st_mode & 0o222
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        with refused(errno.EACCES, errno.EPERM):
            os.close(os.open(agent / name, flags))
    done = shared.shell(f"echo x > {agent.name}/{name}", check=False)
    assert (done.returncode, "enied" in done.stderr) == (1, True)


def test_modes_and_types(shared: Tree) -> None:
    agent = busy(shared)
    put(agent / "inbox/.d", b"x")
    modes = {path.name: path.stat().st_mode for path in (*agent.iterdir(), agent, *(agent / "inbox").iterdir())}
    assert {name for name, mode in modes.items() if stat.S_ISDIR(mode)} == {"inbox", agent.name}
    assert stat.S_IMODE(modes["in"]) == stat.S_IMODE(modes["ctl"]) == 0o200
    assert all(path.stat().st_uid == os.getuid() for path in agent.rglob("*"))
    assert len({path.stat().st_ino for path in agent.rglob("*")}) == len(list(agent.rglob("*")))


@pytest.mark.parametrize("name", ["in", "ctl", "out", "spec", "status", "inbox", ".", "inbox/.d", "inbox/first"])
def test_modes_and_times_are_accepted_and_change_nothing(shared: Tree, name: str) -> None:
    agent = busy(shared)
    put(agent / "inbox/.d", b"x")
    before = shared.stat(agent.name), (agent / name).stat().st_mode
    shared.shell(f"cd {agent.name}; touch {name}; touch -d 2001-01-01 {name}; chmod 640 {name}; chown 0:0 {name}")
    assert (shared.stat(agent.name), (agent / name).stat().st_mode) == before


def test_cp_p_and_install_work(shared: Tree, base: Path) -> None:
    agent = fresh(shared)
    (base / "file").write_text("x\n")
    (base / "spec").write_text(ECHO)
    shared.shell(f"cd {agent.name}; cp -p {base}/spec spec; cp -p {base}/file in; cp -a {base}/file inbox/k1")
    assert answers(shared, agent) == [b"x\n", b"x\n"]
    shared.shell(f"cp -p {base}/spec {agent.name}/out")
    assert (agent / "out").read_text() == ECHO


def test_statfs_and_attributes(shared: Tree) -> None:
    agent = fresh(shared)
    told, real = os.statvfs(shared.mount), os.statvfs(shared.home)
    assert (told.f_blocks * told.f_frsize, told.f_namemax) == (real.f_blocks * real.f_frsize, real.f_namemax)
    assert "zoefs" in shared.shell("df . | tail -n 1").stdout
    for path in (agent, agent / "status"):
        with refused(errno.ENOTSUP, errno.ENODATA):
            os.getxattr(path, "user.x")
        with refused(errno.ENOTSUP, errno.EPERM):
            os.setxattr(path, "user.x", b"y")


# -- retiring --------------------------------------------------------------------------------------------------------


def test_rmdir_of_one_never_started(shared: Tree) -> None:
    agent = fresh(shared)
    agent.rmdir()
    assert not agent.exists()
    assert not (shared.home / "agents" / agent.name).exists()


def test_made_and_retired_again_and_again(shared: Tree) -> None:
    """At whatever moment the supervisor first looks at it: one never started can be retired."""
    for n in range(100):
        path = shared.agent(f"brief{n % 3}")
        path.mkdir()
        path.rmdir()
    assert not [name for name in os.listdir(shared.home / "agents") if "brief" in name]


def test_rmdir_is_ebusy_unless_stopped(shared: Tree) -> None:
    for agent in (busy(shared), fresh(shared)):
        if word(agent) == "await":
            ask(shared, agent, b"x")
        before = shared.stat(agent.name)
        with refused(errno.EBUSY):
            agent.rmdir()
        done = shared.shell(f"rmdir {agent.name}", check=False)
        assert (done.returncode, "busy" in done.stderr) == (1, True)
        assert "stop" in error(agent)
        assert shared.stat(agent.name) == before
        stopped(shared, agent).rmdir()
        assert not agent.exists()


def test_rmdir_of_a_failed_one(shared: Tree) -> None:
    agent = fresh(shared, 'backend = "exec"\nargv = ["/no/such/program"]\n')
    put(agent / "in", b"x")
    assert shared.settle(agent.name) == "failed"
    agent.rmdir()
    assert not agent.exists()


def test_a_name_can_be_made_anew(shared: Tree) -> None:
    """What was stays in HOME/retired and in the journal; the new agent knows nothing of it."""
    agent, name = fresh(shared), ""
    name = agent.name
    put(agent / "inbox/k1", b"old")
    assert shared.ended(name, "k1") == ("done", b"old")
    put(agent / "inbox/.draft", b"draft")
    stopped(shared, agent)
    last = events(agent)[-1]["seq"]
    with open(agent / "events") as held:
        agent.rmdir()
        (kept,) = (shared.home / "retired").glob(f"{name}.*")
        assert (kept / "turns/1").read_bytes() == b"old"
        assert (kept / "orders/tmp/.draft").read_bytes() == b"draft"
        agent.mkdir()
        assert held.read().count("\n") >= last
    (agent / "spec").write_text(ECHO)
    assert (word(agent), os.listdir(agent / "inbox"), (agent / "out").read_bytes()) == ("await", [], b"")
    assert {shared.stat(name)[key] for key in ("turn", "queued", "incarnation")} == {"0"}
    put(agent / "inbox/k1", b"new")
    assert shared.ended(name, "k1") == ("done", b"new")
    seqs = [event["seq"] for event in events(agent)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) > last
    kinds = [event["kind"] for event in events(agent)]
    assert kinds.count("created") == 2
    assert kinds.count("retired") == 1
    assert (agent / "chat").read_text().count("old") == 0
    assert shared.stat(name)["turn"] == "1"


def test_rmdir_cancels_what_waits(shared: Tree, base: Path) -> None:
    agent = busy(shared, gated(base / "gate"))
    put(agent / "inbox/k1", b"must not run")
    stopped(shared, agent).rmdir()
    (base / "gate").unlink()
    agent.mkdir()
    (agent / "spec").write_text(ECHO)
    assert ask(shared, agent, b"next") == b"next"
    assert shared.stat(agent.name)["turn"] == "1"
    assert "k1" not in [event.get("id") for event in events(agent) if event["kind"] == "prompt-given"]


def test_descriptors_of_a_retired_agent(shared: Tree) -> None:
    """Writing is refused and nothing reaches the agent that has the name now."""
    agent = fresh(shared)
    fds = {name: os.open(agent / name, os.O_WRONLY) for name in ("in", "ctl", "out", "spec")}
    fds["draft"] = os.open(agent / "inbox/.d", os.O_WRONLY | os.O_CREAT)
    os.write(fds["in"], b"half")
    with refused(errno.EBUSY):  # a prompt is on its way
        agent.rmdir()
    stopped(shared, agent).rmdir()
    agent.mkdir()
    for fd in fds.values():
        with refused(errno.ESTALE, errno.ENOENT):
            os.write(fd, b"stop")
        os.close(fd)
    (agent / "spec").write_text(ECHO)
    assert (shared.settle(agent.name), ids(agent), (agent / "out").read_bytes()) == ("await", [], b"")
    assert ask(shared, agent, b"next") == b"next"


def test_rmdir_against_a_prompt(shared: Tree) -> None:
    """At once from two processes: either the prompt was accepted and the agent stays, or it is gone."""
    with clients(2) as two:
        for _ in range(20):
            agent = fresh(shared, BUSY)
            said = two.at_once([f"os.rmdir(r'{agent}')", f"put(r'{agent}/inbox/k1', b'x')"])
            if said[0] == "ok":
                assert not agent.exists()
            else:
                assert said == ["EBUSY", "ok"]
                wait_for(lambda: fate(agent, "k1") == "sent", "it runs")  # noqa: B023
                stopped(shared, agent).rmdir()

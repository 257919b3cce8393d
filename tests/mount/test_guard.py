"""Guarantee 8(a): what an agent may write from inside, tried by a real agent through a real mount."""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.living import Tree, wait_for
from tests.mount.clients import busy, error, exec_spec, fate, fresh, ids, put, refused
from zoefs.contract.events import decode_lines
from zoefs.contract.spec import encode_spec

AGENTS = '"$ZOEFS_MOUNT/agents"'
_turns = itertools.count(1)

DO = """
import errno, os, sys
from pathlib import Path
from tests.mount.clients import put
agents = Path(os.environ.get("ZOEFS_MOUNT", sys.argv[1])) / "agents"
me = agents / os.environ.get("ZOEFS_AGENT", sys.argv[2])
for statement in sys.argv[3:]:
    try:
        exec(statement)
        print("ok")
    except OSError as failure:
        print(errno.errorcode[failure.errno])
"""
"""Carries out Python statements and says what came of each."""


def shell_agent(tree: Tree, **more: object) -> Path:
    """An agent that runs each prompt as a shell script and answers what it printed."""
    return fresh(tree, exec_spec("sh", **more))


def script(tree: Tree, agent: Path, *statements: str) -> str:
    """The shell words that carry out Python statements in which `agents` and `me` are directories."""
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{DO}"]
    return shlex.join([*words, str(tree.mount), agent.name, *statements])


def run(tree: Tree, agent: Path, text: str) -> str:
    """What the agent answers to a prompt."""
    id = f"t{next(_turns)}"
    put(agent / "inbox" / id, text.encode())
    found, answer = tree.ended(agent.name, id)
    assert found == "done", answer
    tree.settle(agent.name)
    return answer.decode().strip()


def inside(tree: Tree, agent: Path, statement: str) -> str:
    """What came of a statement carried out inside the agent: `ok` or an errno's name."""
    return run(tree, agent, script(tree, agent, statement))


def each_inside(tree: Tree, agent: Path, *statements: str) -> list[str]:
    """What came of each of these statements."""
    return run(tree, agent, script(tree, agent, *statements)).split()


def log(tree: Tree) -> list[Any]:
    """The refusals in the mount's journal."""
    events, _ = decode_lines((tree.home / "log" / "zoefs.jsonl").read_bytes())
    return [event for event in events if event.kind == "refused"]


def claude(tree: Tree, **more: object) -> Path:
    """An agent that is never started, so that its permission is all there is to it."""
    return fresh(tree, encode_spec({"backend": "claude", **more}))


# -- the rows ---------------------------------------------------------------------------------------------------------


def test_a_peer_is_prompted_by_in_and_by_inbox(shared: Tree) -> None:
    agent, peer = shell_agent(shared), fresh(shared)
    assert inside(shared, agent, f"put(agents / '{peer.name}/in', b'one')") == "ok"
    assert inside(shared, agent, f"put(agents / '{peer.name}/inbox/k2', b'two')") == "ok"
    draft = f"box = agents / '{peer.name}/inbox'; put(box / '.d', b'three'); os.rename(box / '.d', box / 'k3')"
    assert inside(shared, agent, draft) == "ok"
    shared.settle(peer.name)
    assert {shared.receipt(peer.name, id)[1] for id in ids(peer)} == {b"one", b"two", b"three"}


def test_it_may_take_back_what_waits_in_the_inbox_of_a_peer(shared: Tree) -> None:
    agent, peer = shell_agent(shared), busy(shared)
    put(peer / "inbox/k2", b"x")
    assert inside(shared, agent, f"os.unlink(agents / '{peer.name}/inbox/k2')") == "ok"
    assert fate(peer, "k2") == "cancelled"
    shared.zoefs("stop", peer.name)


@pytest.mark.parametrize(
    "statement",
    [
        "put(me / 'in', b'x')",
        "put(me / 'inbox/own', b'x')",
        "put(me / 'inbox/.own', b'x')",
        "put(me / 'ctl', b'stop')",
        "put(me / 'spec', b'')",
        "os.open(me / 'spec', os.O_RDWR)",
        "os.rmdir(me)",
    ],
)
def test_of_its_own_only_out_is_its_to_write(shared: Tree, statement: str) -> None:
    agent = shell_agent(shared)
    assert inside(shared, agent, statement) == "EACCES"
    assert f"agent {agent.name} may not" in error(agent)
    assert inside(shared, agent, "put(me / 'out', b'ok')") == "ok"


def test_its_own_draft_of_a_person_is_not_emptied(shared: Tree) -> None:
    """O_TRUNC at an open for reading is a change, too."""
    agent = shell_agent(shared)
    put(agent / "inbox/.d", b"of a person")
    assert inside(shared, agent, "os.close(os.open(me / 'inbox/.d', os.O_RDONLY | os.O_TRUNC))") == "EACCES"
    assert (agent / "inbox/.d").read_bytes() == b"of a person"
    (agent / "inbox/.d").unlink()


@pytest.mark.parametrize(
    "act", ["put(peer / 'out', b'x')", "put(peer / 'ctl', b'stop')", "put(peer / 'spec', b'')", "os.rmdir(peer)"]
)
def test_the_rest_of_a_peer_is_not(shared: Tree, act: str) -> None:
    agent, peer = shell_agent(shared, spawn=True), fresh(shared)
    spec = (peer / "spec").read_bytes()
    assert inside(shared, agent, f"peer = agents / '{peer.name}'; {act}") == "EACCES"
    told = error(peer)
    assert told.startswith(f"agent {agent.name} may not ")
    noted = log(shared)[-1].data
    assert noted == {"agent": peer.name, "errno": "EACCES", "text": told, "by": agent.name}
    assert ((peer / "spec").read_bytes(), (peer / "out").read_bytes(), shared.status(peer.name)) == (spec, b"", "await")


def test_an_ask_is_not_answered_from_inside(shared: Tree) -> None:
    agent, peer = shell_agent(shared), fresh(shared)
    before = len((peer / "error").read_bytes())
    assert inside(shared, agent, f"put(agents / '{peer.name}/ctl', b'allow a1')") == "EACCES"
    assert before == 0
    assert "ctl" in error(peer)


def test_who_reads_is_never_refused(shared: Tree) -> None:
    agent, peer = shell_agent(shared), fresh(shared)
    files = "for f in ('status', 'stat', 'spec', 'out', 'events', 'error', 'ask'): (agents / peer / f).read_bytes()"
    assert inside(shared, agent, f"peer = '{peer.name}'\n{files}") == "ok"
    assert inside(shared, agent, "os.open(me / 'in', os.O_RDONLY)") == "ok"


# -- permission -------------------------------------------------------------------------------------------------------


def test_a_wider_peer_takes_no_prompt_unless_the_spec_says_so(shared: Tree) -> None:
    agent, bold = shell_agent(shared), shell_agent(shared, prompt_wider=True)
    wide, narrow = claude(shared, permission="allow"), claude(shared, permission="deny")
    for write in ("put(agents / '{}/in', b'x')", "put(agents / '{}/inbox/.k', b'x')"):
        assert inside(shared, agent, write.format(wide.name)) == "EACCES"
        assert "without prompt_wider = true" in error(wide)
    assert inside(shared, agent, f"put(agents / '{narrow.name}/inbox/.k', b'x')") == "ok"
    assert inside(shared, bold, f"put(agents / '{wide.name}/inbox/.k', b'x')") == "ok"
    assert inside(shared, bold, f"put(agents / '{wide.name}/ctl', b'start')") == "EACCES"


# -- the directories of HOME ------------------------------------------------------------------------------------------

CHANGES = {
    "write": "put(at / 'f', b'x')",
    "make": "put(at / 'made', b'x')",
    "open for reading and writing": "os.close(os.open(at / 'f', os.O_RDWR))",
    "append": "os.close(os.open(at / 'f', os.O_WRONLY | os.O_APPEND))",
    "truncate": "os.truncate(at / 'f', 0)",
    "cut at a read": "os.close(os.open(at / 'f', os.O_RDONLY | os.O_TRUNC))",
    "chmod": "os.chmod(at / 'f', 0o640)",
    "times": "os.utime(at / 'f', (1, 1))",
    "mkdir": "os.mkdir(at / 'dir')",
    "rmdir": "os.rmdir(at / 'empty')",
    "unlink": "os.unlink(at / 'f')",
    "rename": "os.rename(at / 'f', at / 'g')",
    "symlink": "os.symlink('f', at / 's')",
    "link": "os.link(at / 'f', at / 'l')",
    "fifo": "os.mkfifo(at / 'fifo')",
}


Lay = Callable[[str], Path]


@pytest.fixture
def lay(shared: Tree) -> Iterator[Lay]:
    """Makes a directory of a test's own at a place of HOME, with a file `f` and a directory `empty`."""
    made: list[Path] = []

    def make(place: str) -> Path:
        at = shared.home / place / f"g{next(_turns)}"
        (at / "empty").mkdir(parents=True)
        (at / "f").write_bytes(b"as it was")
        made.append(at)
        return at

    yield make
    for at in made:
        shutil.rmtree(at)


def at(tree: Tree, place: Path) -> str:
    """The statement that calls this directory `at`, as MOUNT shows it."""
    return f"at = agents.parent / '{place.relative_to(tree.home)}'"


def shape(of: Path) -> object:
    found = {path.name: (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns) for path in of.iterdir()}
    return found, (of / "f").read_bytes()


@pytest.mark.parametrize("place", ["tasks", "tasks/4711", "asks", "workflows", "roles", "channels", "bonfire"])
def test_homes_directories_are_not_an_agents_to_write(shared: Tree, lay: Lay, place: str) -> None:
    agent, mine = shell_agent(shared, spawn=True), lay(place)
    before = shape(mine)
    reads = "(at / 'f').read_bytes(), os.listdir(at), os.stat(at / 'f')"
    results = each_inside(shared, agent, at(shared, mine), *CHANGES.values(), reads)
    assert dict(zip(CHANGES, results[1:], strict=False)) == dict.fromkeys(CHANGES, "EACCES")
    assert results[-1] == "ok"
    assert shape(mine) == before
    told = f"agent {agent.name} may not write {mine.relative_to(shared.home)}/fifo"
    assert told in error(agent)
    noted = log(shared)[-1].data
    assert (noted["by"], noted["errno"]) == (agent.name, "EACCES")
    assert told in noted["text"]


@pytest.mark.parametrize("place", ["tasks/new", "context", "context/deep/er"])
def test_these_of_homes_directories_are(shared: Tree, lay: Lay, place: str) -> None:
    agent, mine = shell_agent(shared), {change: lay(place) for change in CHANGES}
    before = {change: shape(where) for change, where in mine.items()}
    steps = [f"{at(shared, where)}; {CHANGES[change]}" for change, where in mine.items()]
    assert dict(zip(CHANGES, each_inside(shared, agent, *steps), strict=True)) == dict.fromkeys(CHANGES, "ok")
    for change, where in mine.items():
        if change in ("unlink", "rename"):
            assert not (where / "f").exists()
        else:
            assert (shape(where) == before[change]) == change.startswith(("open", "append"))
    assert error(agent) == ""


@pytest.mark.parametrize(
    ("act", "result"),
    [
        ("os.rename(held / 'f', free / 'taken')", "EACCES"),
        ("os.rename(free / 'f', held / 'given')", "EACCES"),
        ("os.link(held / 'f', free / 'alias')", "EACCES"),
        ("os.symlink(held / 'f', free / 'way'); put(free / 'way', b'x')", "EACCES"),
        ("os.rename(free / 'f', top / 'tasks/new/f')", "ok"),
        ("os.link(free / 'f', top / 'tasks/new/l')", "ok"),
        ("os.rename(top / 'tasks/new', top / 'tasks/old')", "EACCES"),
        ("os.rmdir(top / 'context')", "EPERM"),
        ("put(top / 'log/zoefs.jsonl', b'x')", "EROFS"),
        ("os.symlink('/', top / 'hosts/h')", "EACCES"),
    ],
)
def test_no_way_leads_from_what_it_may_write_to_what_it_may_not(shared: Tree, lay: Lay, act: str, result: str) -> None:
    agent, free, held = shell_agent(shared), lay("context"), lay("workflows")
    where = "; ".join(f"{n} = top / '{p.relative_to(shared.home)}'" for n, p in (("free", free), ("held", held)))
    assert inside(shared, agent, f"top = agents.parent; {where}; {act}") == result
    assert (held / "f").read_bytes() == b"as it was"
    for name in ("f", "l"):
        (shared.home / "tasks/new" / name).unlink(missing_ok=True)


def test_a_file_that_a_person_moved_to_context_is_an_agents_to_write(shared: Tree, lay: Lay) -> None:
    agent, held = shell_agent(shared), lay("workflows")
    there = shared.mount / held.relative_to(shared.home) / "f"
    name = f"moved{next(_turns)}"
    assert there.read_bytes() == b"as it was"
    there.rename(shared.mount / "context" / name)
    assert inside(shared, agent, f"put(agents.parent / 'context/{name}', b'mine')") == "ok"
    (shared.mount / "context" / name).rename(there)
    assert inside(shared, agent, f"{at(shared, held)}; put(at / 'f', b'again')") == "EACCES"
    assert there.read_bytes() == b"mine"


# -- making agents ----------------------------------------------------------------------------------------------------


def test_without_spawn_it_makes_none(shared: Tree) -> None:
    agent = shell_agent(shared)
    assert inside(shared, agent, "os.mkdir(agents / 'made1')") == "EACCES"
    assert error(agent) == f"agent {agent.name} may not make an agent without spawn = true in its spec"
    assert not shared.agent("made1").exists()


def test_with_spawn_it_makes_agents_until_they_start(shared: Tree) -> None:
    agent = shell_agent(shared, spawn=True)
    spec = exec_spec("cat").encode()
    made = shared.agent("made2")
    assert inside(shared, agent, "os.mkdir(agents / 'made2')") == "ok"
    assert inside(shared, agent, f"put(agents / 'made2/spec', {spec!r})") == "ok"
    assert (made / "spec").read_bytes() == spec
    assert inside(shared, agent, "put(agents / 'made2/inbox/k1', b'hello')") == "ok"
    assert shared.ended("made2", "k1") == ("done", b"hello")
    put(made / "ctl", b"stop")
    wait_for(lambda: shared.status("made2") == "stopped", "it is stopped")
    for statement in ("put(agents / 'made2/spec', b'')", "os.rmdir(agents / 'made2')"):
        assert inside(shared, agent, statement) == "EACCES"
    assert (made / "spec").read_bytes() == spec


def test_what_it_made_and_nobody_started_it_may_take_back(shared: Tree) -> None:
    agent, other = shell_agent(shared, spawn=True), shell_agent(shared, spawn=True)
    assert inside(shared, agent, "os.mkdir(agents / 'made3')") == "ok"
    for statement in ("put(agents / 'made3/spec', b'')", "os.rmdir(agents / 'made3')"):
        assert inside(shared, other, statement) == "EACCES"
    assert inside(shared, agent, "os.rmdir(agents / 'made3')") == "ok"
    assert not shared.agent("made3").exists()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"permission": "allow"}, "wider"),
        ({"permission": "plan"}, "wider"),
        ({"args": ["--anything"]}, "args must be"),
        ({"env": ["SECRET"]}, "env must be"),
        ({"prompt_wider": True}, "prompt_wider must be"),
    ],
)
def test_what_it_makes_is_capped(shared: Tree, more: dict[str, object], word: str) -> None:
    agent = shell_agent(shared, spawn=True)
    name = f"capped-{agent.name}"
    spec = encode_spec({"backend": "claude", **more}).encode()
    assert inside(shared, agent, f"os.mkdir(agents / '{name}')") == "ok"
    assert inside(shared, agent, f"put(agents / '{name}/spec', {spec!r})") == "EACCES"
    told = error(shared.agent(name))
    assert word in told
    assert log(shared)[-1].data == {"agent": name, "errno": "EACCES", "text": told, "by": agent.name}
    halves = f"f = os.open(agents / '{name}/spec', os.O_WRONLY | os.O_TRUNC); " + "".join(
        f"os.write(f, {part!r}); " for part in (spec[:9], spec[9:])
    )
    assert inside(shared, agent, f"{halves}os.close(f)") == "EACCES"
    assert (shared.agent(name) / "spec").read_bytes() == b""


def test_the_command_line_inside_an_agent_counts_as_the_agent(shared: Tree) -> None:
    agent, maker, peer = shell_agent(shared), shell_agent(shared, spawn=True), fresh(shared)
    zoefs = f"{sys.executable} -m zoefs.cli.main"
    assert "may not write" in run(shared, agent, f"{zoefs} stop {peer.name} 2>&1; :")
    assert "without spawn = true" in run(shared, agent, f"{zoefs} spawn made4 2>&1; :")
    assert run(shared, agent, f"{zoefs} send {peer.name} hello --id k1") == "k1"
    wide = f"{zoefs} spawn made4 --backend claude --set permission=allow 2>&1; echo $?"
    assert run(shared, maker, wide).endswith("\n4")
    assert not shared.agent("made4").exists()


# -- who is an agent --------------------------------------------------------------------------------------------------

TRIED = {
    "answer an ask": ("put(agents / '{peer}/ctl', b'allow a1')", "EACCES"),
    "give a verb": ("put(agents / '{peer}/ctl', b'stop')", "EACCES"),
    "change a spec": ("put(agents / '{peer}/spec', b'')", "EACCES"),
    "change its own spec": ("put(me / 'spec', b'')", "EACCES"),
    "write policy": ("put(agents.parent / 'workflows/policy.toml', b'x')", "EACCES"),
    "answer for a person": ("put(agents.parent / 'asks/a/answer', b'y')", "EACCES"),
    "replace a peer's answer": ("put(agents / '{peer}/out', b'x')", "EACCES"),
    "prompt a peer": ("put(agents / '{peer}/in', b'from inside')", "ok"),
    "write its own out": ("put(me / 'out', b'mine')", "ok"),
    "give a task": ("put(agents.parent / 'tasks/new/from-{peer}', b'x')", "ok"),
    "keep a note": ("put(agents.parent / 'context/from-{peer}', b'x')", "ok"),
}
LEAVING = {
    "child": "sh {file}",
    "setsid": "setsid -w sh {file}",
    "env -i": "env -i sh {file}",
    "setsid, env -i": "setsid -w env -i sh {file}",
    "double fork": "( ( sh {file} ) & )",
    "all three": "( setsid sh -c 'sleep 0.3; exec env -i sh {file}' & )",
}


@pytest.mark.parametrize("way", LEAVING)
def test_who_leaves_is_still_an_agent(shared: Tree, base: Path, way: str) -> None:
    """While the supervisor lives, also who left by all three: what it inherits from the dead is no person's. Nobody
    knows then which agent it is, so it has no `out` of its own, and every peer may be wider."""
    agent, peer = shell_agent(shared), fresh(shared)
    known = way != "all three"
    unknown = {"prompt a peer": "EACCES", "write its own out": "EACCES"}
    expected = {what: result if known else unknown.get(what, result) for what, (_, result) in TRIED.items()}
    (shared.home / "asks/a").mkdir(exist_ok=True)
    words = script(shared, agent, *(statement.format(peer=peer.name) for statement, _ in TRIED.values()))
    note, file = base / f"note-{agent.name}", base / f"file-{agent.name}"
    file.write_text(f"{words} > {note}.t; mv {note}.t {note}\n")
    answer = run(shared, agent, f"{LEAVING[way].format(file=file)}; until [ -e {note} ]; do sleep 0.05; done")
    assert answer == ("mine" if known else "")
    assert dict(zip(TRIED, note.read_text().split(), strict=True)) == expected
    who = f"agent {agent.name}" if known else "an agent that nobody knows"
    refusals = [event.data["text"] for event in log(shared) if event.data["agent"] == peer.name]
    assert f"{who} may not write {peer.name}/ctl" in refusals[0]
    assert not (shared.home / "workflows/policy.toml").exists()
    assert not (shared.home / "asks/a/answer").exists()
    assert len(ids(peer)) == known
    shared.settle(peer.name)


def test_a_shell_is_no_agent_nor_is_one_of_another_home(shared: Tree) -> None:
    peer = fresh(shared)
    shared.shell(f"echo stop > {peer.name}/ctl")
    env = {**shared.env, "ZOEFS_AGENT": peer.name, "ZOEFS_HOME": "/another/home"}
    line = ["sh", "-c", f"echo start > {peer}/ctl"]
    subprocess.run(line, env=env, check=True, timeout=30)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(line, env={**env, "ZOEFS_HOME": str(shared.home)}, check=True, timeout=30)


def test_an_agent_that_nobody_knows_may_do_least(shared: Tree) -> None:
    """Its name is of no agent here: its permission is unknown."""
    peer = fresh(shared)
    env = {**shared.env, "ZOEFS_AGENT": "nobody"}
    for name in ("in", "ctl", "out"):
        with pytest.raises(subprocess.CalledProcessError):
            subprocess.run(["sh", "-c", f"echo x > {peer / name}"], env=env, check=True, timeout=30)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(["mkdir", shared.agent("made5")], env=env, check=True, timeout=30)
    assert log(shared)[-1].data["agent"] == ""
    assert log(shared)[-1].data["errno"] == "EACCES"
    with refused(errno.ENOENT):
        os.stat(shared.agent("made5"))


def test_an_agent_that_nobody_knows_may_read(shared: Tree) -> None:
    peer = fresh(shared)
    env = {**shared.env, "ZOEFS_AGENT": "nobody"}
    done = subprocess.run(["cat", peer / "status"], env=env, capture_output=True, check=True, timeout=30)
    assert done.stdout == b"await\n"


# -- where a file is ---------------------------------------------------------------------------------------------------

FROM_HOME = """home = Path({home!r}); at = agents.parent
def enter(where):
    (at / where).mkdir(parents=True)
    fd = os.open(at / where, os.O_RDONLY)
    make('first', fd)
    return fd
def make(name, fd):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
"""


def each_at_home(tree: Tree, agent: Path, *statements: str) -> list[str]:
    """The same as `each_inside`, for statements that also know `home` and how to enter and make; the first is ok."""
    return each_inside(tree, agent, FROM_HOME.format(home=str(tree.home)), *statements)[1:]


def test_a_directory_moved_in_home_is_judged_where_it_is(shared: Tree) -> None:
    agent = shell_agent(shared)
    n = agent.name
    assert each_at_home(
        shared,
        agent,
        f"c = enter('context/{n}'); os.rename(home / 'context/{n}', home / 'context/{n}-moved'); make('two', c)",
        f"os.rename(home / 'context/{n}-moved', home / 'roles/{n}'); make('three', c)",
        f"t = enter('tasks/new/{n}'); os.rename(home / 'tasks/new/{n}', home / 'tasks/{n}'); make('two', t)",
        "os.chmod(f'/proc/self/fd/{t}', 0o777)",
    ) == ["ok", "ESTALE", "EACCES", "EACCES"]
    assert sorted(os.listdir(shared.home / "roles" / n)) == ["first", "two"]
    assert os.listdir(shared.home / "tasks" / n) == ["first"]


@pytest.mark.parametrize("last", ["context", "roles"])
def test_a_file_is_judged_by_each_of_its_names(shared: Tree, last: str) -> None:
    """Whichever of them somebody looked at last."""
    agent = shell_agent(shared)
    n = agent.name
    put(shared.home / "context" / n, b"x")
    os.link(shared.home / "context" / n, shared.home / "roles" / n)
    for tree in ("roles", "context", last):
        (shared.mount / tree / n).stat()
    look = f"(at / '{last}/{n}').stat()"
    assert each_at_home(
        shared,
        agent,
        f"fd = os.open(at / 'context/{n}', os.O_RDONLY); {look}; os.open(f'/proc/self/fd/{{fd}}', os.O_WRONLY)",
        f"{look}; os.open(at / 'context/{n}', os.O_WRONLY)",
        f"{look}; os.link(at / 'context/{n}', at / 'context/{n}-more')",
        f"os.unlink(home / 'roles/{n}'); os.open(at / 'context/{n}', os.O_WRONLY)",
        f"os.rename(home / 'context/{n}', home / 'roles/{n}'); os.open(f'/proc/self/fd/{{fd}}', os.O_WRONLY)",
        f"(at / 'roles/{n}').stat(); os.open(f'/proc/self/fd/{{fd}}', os.O_WRONLY)",
        f"os.rename(home / 'roles/{n}', home / 'context/{n}'); os.open(f'/proc/self/fd/{{fd}}', os.O_WRONLY)",
        f"os.unlink(home / 'context/{n}'); os.ftruncate(os.open(f'/proc/self/fd/{{fd}}', os.O_WRONLY), 0)",
    ) == ["EACCES", "EACCES", "EACCES", "ok", "EACCES", "EACCES", "ok", "ok"]

"""SIGKILL of the mount daemon, of the supervisor, or of both, again and again, while people send prompts.

The witnesses stand outside: each exec agent notes every prompt it ever received in a log that it only appends to, and
of the claude agent the model's own log tells. The writers (writer.py, writer.sh) know what was accepted. What must
hold: accepted is received exactly once, byte for byte; what is unknown to its writer at most once; nothing else came.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.claude_tree import AT_ONCE, ClaudeTree, claude_tree
from tests.e2e.reading import agent_home, check_journal, events, mounts, story
from tests.fakes.anthropic import user_texts
from tests.living import Tree, wait_for
from zoefs.disk.process import lives

pytestmark = [pytest.mark.real_cli, pytest.mark.soak]

HERE = Path(__file__).parent
EXEC = ("e1", "e2", "e3")
FINISH_S = 240.0

WITNESS = """
f=$(mktemp "$1/prompt.XXXXXX") && cat >"$f" || exit 9
read -r token _ <<EOF
$(head -c 64 "$f" | head -n 1)
EOF
read -r sha _ <<EOF
$(sha256sum <"$f")
EOF
echo "$token $sha $(wc -c <"$f") $2" >>"$1/$3.log"
rm "$f"
sleep "0.$(printf %03d $(($2 * 37 % 200)))"
echo "$token in turn $2"
case $token in *x) exit 3 ;; esac
"""
"""sh -c WITNESS sh DIRECTORY TURN NAME: note the prompt once it is whole, work 0 to 200 ms, answer, exit 0 or 3."""


@attrs.frozen
class Sent:
    """What a writer says of one prompt."""

    token: str
    agent: str
    way: str
    sha: str
    bytes: int
    fate: str


def say(logs: Iterator[Path]) -> tuple[dict[str, Sent], Counter[str]]:
    """The last word of the writers on each prompt, by token, and the errors they survived."""
    sent: dict[str, Sent] = {}
    errors: Counter[str] = Counter()
    for log in logs:
        for line in log.read_text().splitlines():
            facts: dict[str, Any] = json.loads(line)
            if "errno" in facts:
                errors[facts["errno"]] += 1
            else:
                sent[facts["token"]] = Sent(**facts)
    return sent, errors


class Crowd:
    """The writers of one run, each a process of its own."""

    def __init__(self, tree: Tree, base: Path, seed: int) -> None:
        self.stop = base / "stop"
        self.logs = base / "logs"
        self.logs.mkdir()
        pool = base / "pool"
        pool.write_text(random.Random(seed).randbytes(600_000).hex())
        python = [sys.executable, str(HERE / "writer.py")]
        self.processes = [
            self._start(tree, python, "p1", str(seed + 1), "any", *EXEC),
            self._start(tree, python, "p2", str(seed + 2), "any", *EXEC),
            self._start(tree, python, "pc", str(seed + 3), "small", "c"),
            self._start(tree, ["bash", str(HERE / "writer.sh")], "b1", str(seed % 30_000 + 4), str(pool), *EXEC),
            self._start(tree, ["bash", str(HERE / "writer.sh")], "b2", str(seed % 30_000 + 5), str(pool), *EXEC),
        ]

    def _start(self, tree: Tree, program: list[str], name: str, *rest: str) -> subprocess.Popen[bytes]:
        words = [*program, str(tree.mount), str(self.logs / name), str(self.stop), name, *rest]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)

    def finish(self) -> None:
        """Let them end; each must end by itself and well."""
        self.stop.touch()
        for process in self.processes:
            assert process.wait(FINISH_S) == 0, f"a writer gave up: {process.args!r}"

    def end(self) -> None:
        """Whatever happened, none is left."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def choose_the_instant(tree: Tree, chance: random.Random) -> None:
    """Some instant; half of the time one at which a prompt is just being written."""
    time.sleep(chance.uniform(0.0, 0.6))
    if chance.random() < 0.5:
        end = time.monotonic() + 1.0
        while time.monotonic() < end and not any(os.listdir(agent_home(tree, name).tmp) for name in (*EXEC, "c")):
            pass
        time.sleep(chance.uniform(0.0, 0.004))


def complaints(tree: Tree) -> str:
    """The end of what the daemons said on stderr."""
    return "".join(path.read_text()[-3000:] for path in (tree.home / "log").glob("*.err"))


def kill_at_random(tree: Tree, chance: random.Random) -> None:
    """SIGKILL one of the daemons or both at some instant; now and then once more while they start. Then `up` alone."""
    choose_the_instant(tree, chance)
    parts = chance.choice((["mount"], ["supervisor"], ["mount", "supervisor"], ["supervisor", "mount"]))
    for part in ("mount", "supervisor"):
        assert lives(tree.part(part).mark), f"the {part} died by itself:\n{complaints(tree)}"
    for part in parts:
        tree.kill(part)
    if chance.random() < 0.2:
        marks = {part: tree.part(part).mark for part in parts}
        words = [sys.executable, "-m", "zoefs.cli.main", "up"]
        starting = subprocess.Popen(words, env=tree.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        victim = chance.choice(parts)
        wait_for(lambda: tree.part(victim).mark != marks[victim] or starting.poll() is not None, f"{victim} starts")
        time.sleep(chance.uniform(0.0, 0.2))
        tree.kill(victim)
        starting.wait(60)
    tree.up()


@pytest.fixture
def claude(base: Path) -> Iterator[ClaudeTree]:
    with claude_tree(base) as found:
        yield found


def test_what_was_accepted_is_received_once_whatever_is_killed(claude: ClaudeTree, base: Path, soak: bool) -> None:
    seed = int(os.environ.get("ZOEFS_SEED") or time.time_ns() % 1_000_000_000)
    kills = 200 if soak else 30
    print(f"ZOEFS_SEED={seed}, {kills} kills")
    chance, tree = random.Random(seed), claude.tree
    witness = base / "witness"
    witness.mkdir()
    for name in EXEC:
        argv = json.dumps(["sh", "-c", WITNESS, "sh", str(witness), "{turn}", "{name}"])
        tree.make(name, f'backend = "exec"\nargv = {argv}\n')
    claude.make("c", AT_ONCE)
    sessions = {"c": claude.turn("c", "first of all", "zero") and (tree.agent("c") / "session").read_text()}
    crowd = Crowd(tree, base, seed)
    try:
        for _ in range(kills):
            kill_at_random(tree, chance)
            assert mounts(tree) == 1, "not one mount, but dead ones with it"
        crowd.finish()
    finally:
        crowd.end()
    for name in (*EXEC, "c"):
        assert tree.settle(name, FINISH_S) == "await", f"{name} has not done it all\n{complaints(tree)}"
    sent, errors = say(crowd.logs.iterdir())
    print(Counter(f"{one.way} {one.fate}" for one in sent.values()), errors)

    received = witnessed(witness)
    assert not [one for one in sent.values() if one.fate == "begun"]
    for one in sent.values():
        if one.agent in EXEC:
            check_exec(tree, one, received.pop(one.token, []))
    assert not received, f"nobody sent these: {sorted(received)[:10]}"
    check_claude(claude, [one for one in sent.values() if one.agent == "c"])
    for name in (*EXEC, "c"):
        check_journal(tree, name)
        assert len(events(tree, name, "session")) == 1, f"{name}: another session"
    assert (tree.agent("c") / "session").read_text() == sessions["c"]
    assert sum(one.fate == "accepted" for one in sent.values()) > kills
    assert {one.way for one in sent.values() if one.fate == "accepted"} == {"in", "id", "mv", "cp", "printf"}
    assert sum(errors.values()) > kills / 3, "hardly anybody noticed the kills"


def witnessed(directory: Path) -> dict[str, list[tuple[str, int, int, str]]]:
    """What the exec agents received: by token, each time with sha256, bytes, turn and agent."""
    found: dict[str, list[tuple[str, int, int, str]]] = {}
    for log in directory.glob("*.log"):
        for line in log.read_text().splitlines():
            token, sha, size, turn = line.split()
            found.setdefault(token, []).append((sha, int(size), int(turn), log.stem))
    return found


def check_exec(tree: Tree, one: Sent, times: list[tuple[str, int, int, str]]) -> None:
    """One prompt to an exec agent against what the witness saw and what its receipt says."""
    if one.fate == "accepted":
        assert len(times) == 1, f"{one} was received {len(times)} times\n{story(tree, one.agent, one.token)}"
    assert len(times) <= (one.fate != "cut"), f"{one} was received {len(times)} times"
    for sha, size, turn, agent in times:
        assert (sha, size, agent) == (one.sha, one.bytes, one.agent), one
        (end,) = [event for event in events(tree, agent, "turn-ended") if event.number("turn") == turn]
        expected = "failed" if one.token.endswith("x") else "done"
        assert end.text("how") == expected, (one, end)
        if one.way != "in":
            assert end.text("id") == one.token
        head, answer = tree.receipt(agent, end.text("id"))
        assert head["receipt"] == expected
        assert answer.decode() == f"{one.token} in turn {turn}\n"


def check_claude(claude: ClaudeTree, sent: list[Sent]) -> None:
    """The prompts to the claude agent against the last history that the model saw."""
    assert claude.turn("c", "last of all", "omega")
    times: dict[str, list[str]] = {}
    for text in claude.history()[1:-1]:
        times.setdefault(text.partition("\n")[0], []).append(text)
    for one in sent:
        texts = times.pop(one.token, [])
        if one.fate == "accepted":
            message = f"{one} stands {len(texts)} times in the history\n{story(claude.tree, 'c', one.token)}"
            assert len(texts) == 1, message
        assert len(texts) <= (one.fate != "cut"), f"{one} stands {len(texts)} times in the history"
        for text in texts:
            assert hashlib.sha256(text.encode()).hexdigest() == one.sha, one
        if one.fate == "accepted" and one.way != "in":
            fate, answer = claude.tree.ended("c", one.token)
            assert fate == "done", (one, fate)
            assert one.token in answer.decode()
    assert not times, f"nobody sent these: {sorted(times)[:10]}"
    lasting = [user_texts(turn["body"]) for turn in claude.fake.turns()]
    assert all(len(texts) == len(set(texts)) for texts in lasting), "a prompt stood twice in a history"

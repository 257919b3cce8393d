"""Guarantee 3: write, wait, read is right in any shell, however short the turn, and a verb counts when write() returns.

The clients are programs of their own; what they saw is judged here against the journal.
"""

from __future__ import annotations

import datetime
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import attrs
import pytest

from tests.living import DEADLINE, Tree, wait_for
from tests.mount.clients import (
    BUSY,
    ORDERS,
    SHELLS,
    Metronome,
    ask,
    events,
    fate,
    fresh,
    gated,
    ids,
    put,
    waits_in_kernel,
)
from zoefs.contract.words import WAIT_SECONDS, Status

LATE = 0.6
"""An answer of `wait` that came so many seconds after the agent had settled was not woken but timed out."""

SHELL = """
while read -r tag how delay; do
    echo "$tag $how $delay" > in
    [ "$how" != hang ] || echo interrupt > ctl
    while w=$(cat wait) && [ -z "$w" ]; do date '+empty %s.%N'; done
    echo "word $w"
    [ "$w" = await ] && cat out
    date "+end $tag %s.%N"
done
"""
PYTHON = """
import sys, time
for line in sys.stdin:
    with open("in", "w") as file:
        file.write(line)
    if " hang " in line:
        with open("ctl", "w") as file:
            file.write("interrupt")
    while not (word := open("wait").read()):
        print("empty", time.time())
    print("word", word, end="")
    if word == "await\\n":
        print(open("out").read(), end="")
    print("end", line.split()[0], time.time(), flush=True)
"""
CLIENTS = {
    "bash": ["bash", "-c", SHELL],
    "dash": ["dash", "-c", SHELL],
    "python": [sys.executable, "-W", "ignore::ResourceWarning", "-c", PYTHON],
}
ANSWERS = {"done": {"answer {}\n"}, "fail": {""}, "half": {"half {}\n"}, "hang": {"", "begun {}\n"}}
"""What `out` may hold after each kind of turn."""


@attrs.define
class Round:
    """One prompt and what its client saw: the word, the text of `out`, and when each read of `wait` answered."""

    tag: str
    how: str
    word: str = ""
    out: str = ""
    answered: list[float] = attrs.Factory(list)


def plan(client: str, count: int) -> list[tuple[str, str, str]]:
    """Half of the turns take no time, the others 50 ms; most are done, some fail and some are interrupted."""
    chance = random.Random(client)
    kinds = ["done"] * 7 + ["fail", "half", "hang"]
    return [(f"{client}{n}", chance.choice(kinds), chance.choice(["0", "0.05"])) for n in range(count)]


def heard(rounds: list[Round], output: str) -> None:
    """Take a client's output apart."""
    left = iter(rounds)
    now = next(left)
    for line in output.splitlines(keepends=True):
        match line.split():
            case ["empty", t]:
                now.answered.append(float(t))
            case ["word", word]:
                now.word = word
            case ["end", tag, t] if tag == now.tag:
                now.answered.append(float(t))
                now = next(left, now)
            case _:
                now.out += line


def settled_at(agent: Path) -> list[float]:
    """When each turn was over, in seconds since 1970: its last event before the next prompt was given."""
    times: list[float] = []
    for event in events(agent):
        t = datetime.datetime.fromisoformat(event["t"]).timestamp()
        if event["kind"] == "prompt-given":
            times.append(t)
        elif times:
            times[-1] = t
    return times


@pytest.mark.soak
def test_write_wait_read_is_never_stale(shared: Tree, soak: bool) -> None:
    """Three clients with an agent each, while twenty threads read every status."""
    count = (2000 if soak else 300) // len(CLIENTS)
    agents = {client: fresh(shared, ORDERS) for client in CLIENTS}
    plans = {client: plan(client, count) for client in CLIENTS}
    over, seen, metronome = threading.Event(), set[bytes](), Metronome()

    def look() -> None:
        while not over.is_set():
            for agent in agents.values():
                seen.add((agent / "status").read_bytes())

    def tick() -> None:
        while not over.wait(0.01):
            metronome.tick()

    threads = [threading.Thread(target=look) for _ in range(20)] + [threading.Thread(target=tick)]
    outputs = {}
    processes = {
        client: subprocess.Popen(argv, cwd=agents[client], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for client, argv in CLIENTS.items()
    }
    for thread in threads:
        thread.start()
    try:

        def talk(client: str) -> None:
            lines = "".join(f"{' '.join(line)}\n" for line in plans[client])
            outputs[client] = processes[client].communicate(lines, timeout=20 * DEADLINE)[0]

        talkers = [threading.Thread(target=talk, args=(client,)) for client in CLIENTS]
        for thread in talkers:
            thread.start()
        for thread in talkers:
            thread.join()
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for process in processes.values():
            process.kill()

    assert seen <= {b"await\n", b"running\n", b"starting\n"}
    late = []
    for client, agent in agents.items():
        rounds = [Round(tag, how) for tag, how, _ in plans[client]]
        heard(rounds, outputs[client])
        for one in rounds:
            assert one.word == Status.AWAIT, one
            assert one.out in {text.format(one.tag) for text in ANSWERS[one.how]}, one
        times = settled_at(agent)
        assert len(times) == count
        for one, t in zip(rounds, times, strict=True):
            missed = [e for e in one.answered if e - t > LATE and not metronome.stood_still(t, e)]
            late += [(one, t, missed)] if missed else []
    assert not late, f"{len(late)} of {3 * count} rounds lost a wake-up, the first: {late[0]}"


# -- verbs -----------------------------------------------------------------------------------------------------------

SAY = 'while w=$(cat wait) && [ -z "$w" ]; do :; done; echo "$w"'


@pytest.mark.parametrize("shell", SHELLS)
def test_a_verb_is_never_followed_by_the_word_of_before(shared: Tree, shell: str) -> None:
    agent = fresh(shared, ORDERS)
    script = f"cd {agent.name}; for i in $(seq 25); do echo stop > ctl; {SAY}; echo start > ctl; {SAY}; done"
    assert shared.shell(script, shell).stdout.split() == ["stopped", "await"] * 25


@pytest.mark.parametrize("shell", SHELLS)
def test_a_stop_of_a_turn_is_never_followed_by_the_word_of_before(shared: Tree, shell: str) -> None:
    """Whether the prompt was given before the stop or waits for the start."""
    agent = fresh(shared, BUSY)
    script = f"echo p > in; echo stop > ctl; {SAY}; echo start > ctl; echo interrupt > ctl; {SAY}"
    said = shared.shell(f"cd {agent.name}; for i in $(seq 5); do {script}; done", shell).stdout.split()
    assert said == ["stopped", "await"] * 5


def test_what_is_pending_is_told_until_it_is_done(tree: Tree) -> None:
    """No supervisor carries it out, so it can be looked at."""
    agent = tree.make("r1", ORDERS)
    tree.kill("supervisor")
    assert tree.settle("r1") == "await"
    (agent / "ctl").write_text("stop\n")
    assert tree.stat("r1")["pending"] == "stop"
    assert (tree.status("r1"), (agent / "wait").read_text()) == ("await", "")
    tree.up()
    assert tree.settle("r1") == "stopped"
    assert "pending" not in tree.stat("r1")


def test_an_interrupt_right_after_a_write(shared: Tree) -> None:
    """At any moment within 100 ms of it; the agent is ready afterwards and the next prompt works."""
    agent, chance = fresh(shared, ORDERS), random.Random(1)
    for n in range(50):
        put(agent / "inbox" / f"hang{n}", f"hang{n} hang 0\n".encode())
        time.sleep(chance.random() ** 2 * 0.1)  # any moment of the turn's beginning
        (agent / "ctl").write_text("interrupt\n")
        assert shared.settle(agent.name) == "await"
        assert fate(agent, f"hang{n}") == "cancelled"
        assert (agent / "out").read_text() in {"", f"begun hang{n}\n"}
        assert ask(shared, agent, f"next{n} done 0\n".encode()) == f"answer next{n}\n".encode()
    assert shared.stat(agent.name)["turn"] == "100"
    assert len(ids(agent)) == 100


def test_a_program_that_has_just_begun_is_told_by_term(shared: Tree) -> None:
    """TERM comes first and KILL after a grace: one that dies of TERM is never killed, however young it is."""
    agent = fresh(shared, BUSY)
    for n in range(10):
        put(agent / "inbox" / f"k{n}", b"go")
        while fate(agent, f"k{n}") != "sent":
            pass
        (agent / "ctl").write_text("interrupt\n")
        assert shared.settle(agent.name) == "await"
    ends = [event["rc"] for event in events(agent) if event["kind"] == "exited"]
    assert ends == [128 + signal.SIGTERM] * len(ends)
    assert ends


# -- wake-ups --------------------------------------------------------------------------------------------------------


def test_a_waiting_read_is_woken(shared: Tree, base: Path) -> None:
    """The read that began while the agent worked answers when it settles, not when its time is over."""
    agent, late = fresh(shared, gated(base / "gate")), []
    for _ in range(5):
        (base / "gate").touch()
        put(agent / "in", b"go")
        with subprocess.Popen(["cat", agent / "wait"], stdout=subprocess.PIPE, text=True) as process:
            wait_for(lambda: waits_in_kernel(process), "it reads")
            (base / "gate").unlink()
            said = process.communicate(timeout=DEADLINE)[0]
            late += [time.time() - settled_at(agent)[-1]] if said else []
        assert shared.settle(agent.name) == "await"
    assert min(late) < WAIT_SECONDS / 2


def test_it_is_woken_where_the_word_stays_the_same(shared: Tree) -> None:
    """An interrupt with nothing to interrupt: the agent is not settled, and then it is, and was await throughout."""
    agent, begin = fresh(shared), time.monotonic()
    with open(agent / "ctl", "wb", buffering=0) as ctl, open(agent / "wait", "rb", buffering=0) as wait:
        for _ in range(20):
            ctl.write(b"interrupt")
            assert os.pread(wait.fileno(), 100, 0) == b"await\n"
    assert time.monotonic() - begin < 20 * WAIT_SECONDS / 2

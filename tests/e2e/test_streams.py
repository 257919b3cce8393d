"""What a CLI may print: any bytes, at any size, cut anywhere, for ever. Nothing is lost, stops, or grows."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.running import DELTA_SECONDS
from tests.e2e.reading import agent_home, check_journal, events
from tests.e2e.teller import Teller
from tests.e2e.test_diskfull import fill, tmpfs
from tests.living import Tree, living, wait_for
from zoefs.contract.events import seconds
from zoefs.contract.home import Home

ODD = "caf\u00e9 \u2028 \u2029 \x85 \x0b \x0c \r \x1c \U0001f600 \ufffd \x7f"
"""What is a line's end to some readers, and what takes several bytes."""


@pytest.fixture
def teller(base: Path) -> Teller:
    return Teller(base / "teller")


@pytest.fixture
def told(base: Path, teller: Teller) -> Iterator[Tree]:
    """A tree with the agent `t`, which is up."""
    with living(base, teller.env) as tree:
        tree.make("t", 'backend = "claude"\n')
        yield tree


def turn(tree: Tree, id: str, program: str, deadline: float = 120.0) -> bytes:
    """Run a program as a turn; its answer."""
    (tree.agent("t") / "inbox" / id).write_text(program)
    fate, answer = tree.ended("t", id, deadline)
    assert fate == "done", (tree.agent("t") / "error").read_text()
    return answer


def raw_bytes(tree: Tree) -> int:
    """How much the CLIs of the agent printed so far."""
    return sum(path.stat().st_size for path in (agent_home(tree, "t").path / "raw").iterdir())


def beat(tree: Tree) -> int:
    """When the supervisor's heart beat last."""
    return Home(tree.home).supervisor_lock.stat().st_mtime_ns


def rss_kib(tree: Tree, part: str) -> int:
    """Resident memory of a daemon."""
    status = Path(f"/proc/{tree.part(part).mark.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def test_a_line_of_20_mb_is_one_piece(told: Tree) -> None:
    size = 20_000_000
    answer = turn(told, "k1", f"words = 'x' * {size}\ntext(words)\nresult(words)")
    assert len(answer) == size + 1
    assert set(answer[:-1]) == {ord("x")}
    assert (told.agent("t") / "out").read_bytes() == answer
    (text,) = events(told, "t", "text")
    assert len(text.text("text")) + text.number("cut") == size
    assert turn(told, "k2", "result('still here')") == b"still here\n"
    check_journal(told, "t")


NOISE = {
    "NUL": b"\0\0\0\n",
    "NUL in JSON": b'{"type":"assistant\0"}\n',
    "no UTF-8": b"\xff\xfe\x80\n",
    "no object": b'[1]\n"x"\n1\nnull\ntrue\nNaN\n',
    "half an object": b'{"type":"result","terminal_reason":"completed"\n',
    "empty lines": b"\n\n \n\r\n",
    "wrong types": b'{"type":"assistant","message":7}\n{"type":["x"]}\n{"type":{}}\n{"type":"user","message":[]}\n',
    "deep": b"[" * 100_000 + b"\n",
    "a number beyond reason": b'{"type":"result","total_cost_usd":' + b"9" * 5000 + b"}\n",
    "an unknown type": b'{"type":"telepathy","x":1}\n' * 3,
    "carriage returns": b'{"type":"keep_alive"}\r\n',
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_noise_between_lines_changes_nothing(told: Tree, noise: bytes) -> None:
    before = raw_bytes(told)
    assert turn(told, "k1", f"raw({noise!r})\ntext('said')\nraw({noise!r})\nresult('fine')") == b"fine\n"
    assert turn(told, "k2", "result('next')") == b"next\n"
    raw = agent_home(told, "t").raw(1).read_bytes()
    assert raw.count(noise) >= 2
    assert len(raw) > before
    told_once = [event.text("type") for event in events(told, "t", "unknown")]
    assert len(told_once) == len(set(told_once))
    check_journal(told, "t")


def test_odd_characters_and_lone_surrogates(told: Tree) -> None:
    assert turn(told, "k1", f"text({ODD!r})\nresult({ODD!r})") == f"{ODD}\n".encode()
    assert [event.text("text") for event in events(told, "t", "text")] == [ODD]
    half = r"'a\ud83d b\udc00 c'"
    assert turn(told, "k2", f"text({half})\nresult({half})") == "a\ufffd b\ufffd c\n".encode()
    (told.agent("t") / "inbox" / "k3").write_text(f"delta({half})\nraise SystemExit")
    wait_for(lambda: told.stat("t")["restarts"] != "0" or told.status("t") == "failed", "the CLI ended")
    (told.agent("t") / "events").read_bytes().decode()
    (told.agent("t") / "chat").read_bytes().decode()


def test_an_emoji_split_at_every_byte(told: Tree) -> None:
    """Each line is written in two parts, cut at every offset; what is read between them is not taken for a line."""
    program = """
line = json.dumps(dict(type="assistant", message=dict(id="m", content=[dict(type="text", text="<\U0001f600>")])),
                  ensure_ascii=False).encode() + b"\\n"
for cut in range(1, len(line)):
    raw(line[:cut])
    time.sleep(0.002)
    raw(line[cut:])
result(str(len(line) - 1))
"""
    count = int(turn(told, "k1", program))
    assert [event.text("text") for event in events(told, "t", "text")] == ["<\U0001f600>"] * count
    check_journal(told, "t")


def test_bits_are_collected_and_the_piece_is_whole(told: Tree) -> None:
    program = "for n in range(150):\n    delta(f'{n} ')\n    time.sleep(0.02)\n"
    program += "text(' '.join(map(str, range(150))))\nresult('done')"
    assert turn(told, "k1", program) == b"done\n"
    bits = [event.text("text") for event in events(told, "t", "delta")]
    whole = "".join(f"{n} " for n in range(150))
    (began,), (ended,) = events(told, "t", "prompt-given"), events(told, "t", "turn-ended")
    assert 1 <= len(bits) <= 1 + (seconds(ended.t) - seconds(began.t)) / DELTA_SECONDS
    assert whole.startswith("".join(bits))
    assert [event.text("text") for event in events(told, "t", "text")] == [whole.strip()]


def test_a_supervisor_that_dies_among_the_bits_loses_and_doubles_none(told: Tree, teller: Teller) -> None:
    program = "n = 0\nwhile not os.path.exists(base + '/go'):\n    delta(f'{n} ')\n    n += 1\n    time.sleep(0.01)\n"
    program += "text(' '.join(map(str, range(n))))\nresult(str(n))"
    (told.agent("t") / "inbox" / "k1").write_text(program)
    for _ in range(3):
        seen = len(events(told, "t", "delta"))
        wait_for(lambda seen=seen: len(events(told, "t", "delta")) > seen, "more bits")  # type: ignore[misc]
        told.kill("supervisor")
        told.up()
    (teller.path / "go").touch()
    fate, answer = told.ended("t", "k1")
    assert fate == "done"
    whole = "".join(f"{n} " for n in range(int(answer)))
    assert whole.startswith("".join(event.text("text") for event in events(told, "t", "delta")))
    assert [event.text("text") for event in events(told, "t", "text")] == [whole.strip()]
    check_journal(told, "t")


def test_readers_that_never_read_hold_nothing_up(told: Tree) -> None:
    agent = told.agent("t")
    idle = [os.open(agent / name, os.O_RDONLY) for name in ("events", "chat", "out", "status", "stat", "ask") * 20]
    try:
        before = raw_bytes(told)
        assert turn(told, "k1", "for n in range(2000): text(str(n) * 2000)\nresult('done')") == b"done\n"
        assert raw_bytes(told) - before > 10_000_000
        assert len(events(told, "t", "text")) == 2000
        check_journal(told, "t")
    finally:
        for fd in idle:
            os.close(fd)


def test_a_cli_that_prints_faster_than_it_is_heard_can_be_ended(told: Tree) -> None:
    assert turn(told, "k1", "result('first')") == b"first\n"
    flood = """raw(b'{"type":"keep_alive"}\\n' * 5000)\n    time.sleep(0.004)"""
    (told.agent("t") / "inbox" / "k2").write_text(f"while True:\n    {flood}\n")
    wait_for(lambda: raw_bytes(told) > 10_000_000, "it floods")
    (told.agent("t") / "ctl").write_text("kill\n")
    assert told.settle("t") == "stopped"
    size = raw_bytes(told)
    time.sleep(0.1)
    assert raw_bytes(told) == size
    assert told.receipt("t", "k2")[0]["receipt"] == "cancelled"
    check_journal(told, "t")


def test_a_gigabyte_through_one_agent(told: Tree, soak: bool) -> None:
    """Nothing is lost in `events` and `raw`, and neither daemon grows. Full size: 1 GB, and half an hour unread."""
    total, quiet = (1_000_000_000, 1800.0) if soak else (120_000_000, 5.0)
    each, said, count = 4_000_000, 0, 0
    shape = random.Random(7)
    turn(told, "warm", f"text('w' * {each})\nresult('w' * {each})")
    low = {part: rss_kib(told, part) for part in ("mount", "supervisor")}
    while said < total:
        pieces = shape.choice((1, 20, 1000))
        program = f"for n in range({pieces}): text(chr(97 + n % 26) * {each // pieces})\nresult('z' * {each // 4})"
        before = raw_bytes(told)
        assert turn(told, f"k{count}", program) == b"z" * (each // 4) + b"\n"
        said += raw_bytes(told) - before
        count += 1
    time.sleep(quiet)
    high = {part: rss_kib(told, part) for part in low}
    grown = {part: high[part] - low[part] for part in low}
    print(f"{said / 1e6:.0f} MB, {count} turns; resident KiB before {low}, after {high}")
    assert max(grown.values()) < 32_768, grown
    texts = events(told, "t", "text")
    assert sum(len(event.text("text")) + event.number("cut") for event in texts) >= count * (each - 1000)
    raw = agent_home(told, "t").raw(1).read_bytes()
    assert raw.count(b'"type": "result"') == count + 1
    assert raw.endswith(b"\n")
    check_journal(told, "t")


def test_a_disk_that_was_full_under_the_output_leaves_no_turn_open(base: Path, teller: Teller) -> None:
    """What the CLI could not write is gone, so the process is replaced once there is room, and the turn ends."""
    with tmpfs(base / "home"), living(base, teller.env) as tree:
        tree.make("t", 'backend = "claude"\nrestart = { floor = 0.05, cap = 0.05 }\n')
        assert turn(tree, "k1", "result('first')") == b"first\n"
        program = "open(base + '/working', 'w').close()\nwhile not os.path.exists(base + '/go'): time.sleep(0.01)\n"
        program += "text('x' * 100000)\nresult('second')\nopen(base + '/said', 'w').close()"
        (tree.agent("t") / "inbox" / "k2").write_text(program)
        wait_for((teller.path / "working").exists, "the turn works")
        filler = fill(tree)
        (teller.path / "go").touch()
        wait_for((teller.path / "said").exists, "the CLI said all")
        for _ in range(3):  # after each beat of its heart the supervisor looks at the disk
            before = beat(tree)
            wait_for(lambda before=before: beat(tree) != before, "the heart beats")  # type: ignore[misc]
        filler.unlink()
        fate, _ = tree.ended("t", "k2")
        assert fate == "done"
        assert turn(tree, "k3", "result('third')") == b"third\n"
        check_journal(tree, "t")

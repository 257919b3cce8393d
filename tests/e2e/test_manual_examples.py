"""The shell lines of the manual are run as they are printed, and print what it says they print.

A block marked `sh` is run in MOUNT/agents, with the agent that its page tells of; a block marked `text` behind it is
its output. Nothing is said on stderr, and the last command succeeds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.teller import Teller
from tests.living import Tree, living, wait_for
from tests.manual import pages, sections
from zoefs.cli.manual import HEAD, reference

AGENT = """zoefs spawn r1 --backend exec --cwd / --set 'argv=["cat"]'"""
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.M | re.S)


@attrs.frozen
class Example:
    """One block of a page: below which paragraph, the lines, and what they print."""

    page: str
    word: str
    script: str
    prints: str


def examples() -> Iterator[Example]:
    for page, text in pages().items():
        pieces = HEAD.split(text)
        for word, part in zip(["", *pieces[1::3]], pieces[::3], strict=True):
            for script, prints in BLOCK.findall(part):
                yield Example(page, word, script, prints)


ALL = list(examples())


@pytest.fixture(scope="module")
def served() -> Iterator[Tree]:
    """One tree for all examples, in which each finds the agent r1 fresh."""
    base = Path(tempfile.mkdtemp(prefix="zoefs-"))
    try:
        with living(base) as tree:
            yield tree
    finally:
        shutil.rmtree(base)


def test_a_page_with_examples_tells_which_agent_they_need() -> None:
    assert len(ALL) > 20
    for page in {example.page for example in ALL}:
        assert AGENT in pages()[page], reference(page)


@pytest.mark.parametrize("example", ALL, ids=[f"{example.page.split('.')[0]}-{example.word}" for example in ALL])
def test_example(served: Tree, example: Example) -> None:
    served.shell(AGENT)
    try:
        done = served.shell(example.script, check=False)
        assert done.stderr == ""
        assert done.stdout == example.prints
        assert done.returncode == 0
    finally:
        served.up()
        names = sorted(path.name for path in served.agent("").iterdir() if path.name != "list")
        if names:
            served.zoefs("retire", "--stop", "--timeout", "60", *names)


ASKING = """
for n, tool in enumerate(("Read", "Bash")):
    asked = dict(subtype="can_use_tool", tool_name=tool, input=dict(), tool_use_id=f"u{n}")
    say(type="control_request", request_id=f"q{n}", request=asked)
    answer = json.loads(sys.stdin.readline())["response"]["response"]
    text(f"{tool}: {answer['behavior']} {answer.get('message', '')}")
"""
"""What the CLI does in its turn: it asks for two tools, one after the other, and tells what it was answered."""


def test_the_script_that_answers_asks(base: Path) -> None:
    paragraph = sections(pages()["zoefs-recipes.7.md"])["Recipes"]["answer-asks"]
    script = "".join(re.findall(r"^    (.*\n)", paragraph, re.M))
    teller = Teller(base / "cli")
    with living(base, teller.env) as tree:
        tree.make("asker", 'permission = "ask"\n')
        loop = subprocess.Popen(
            ["sh", "-c", script],
            cwd=tree.mount / "agents",
            env=tree.env,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            (tree.agent("asker") / "inbox" / "k").write_text(ASKING)
            assert tree.ended("asker", "k")[0] == "done"
        finally:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.wait()
        told = [(event["decision"], event["why"]) for event in _events(tree, "asker") if event["kind"] == "answered"]
        assert told == [("allow", ""), ("deny", "only reading is allowed here")]


def test_the_scripts_that_back_up_and_restore_in_a_fresh_shell(base: Path) -> None:
    found = sections(pages()["zoefs-recipes.7.md"])["Recipes"]
    back_up, restore = (
        "".join(re.findall(r"^    (.*\n)", found[name], re.M)) for name in ("back-up-home", "restore-home")
    )
    env = {"HOME": str(base), "ZOEFS_HOME": str(base / ".local/state/zoefs"), "ZOEFS_MOUNT": str(base / "zoefs")}
    with living(base, env) as ground:
        tree = attrs.evolve(ground, home=Path(env["ZOEFS_HOME"]), mount=Path(env["ZOEFS_MOUNT"]))
        fresh = {key: value for key, value in tree.env.items() if not key.startswith("ZOEFS_")}

        def run(script: str) -> None:
            subprocess.run(["sh", "-c", script], cwd=base, env=fresh, check=True, timeout=120, capture_output=True)

        tree.shell(AGENT)
        tree.zoefs("send", "r1", "before", "--id", "k1", "--wait")
        run(back_up)
        tree.zoefs("send", "r1", "after", "--id", "k2", "--wait")
        tree.zoefs("down")
        tree.home.rename(base / "aside")
        run(restore)
        assert tree.ended("r1", "k1") == ("done", b"before")
        assert not (tree.agent("r1") / "inbox" / "k2").exists()
        assert tree.zoefs("send", "r1", "again", "--wait").stdout == "again"
        tree.down()
        wait_for(lambda: not tree.processes(), "everything is gone")
        assert not tree.mounted()


def test_the_program_that_reads_events_again_reads_every_segment(base: Path) -> None:
    paragraph = sections(pages()["zoefs-recipes.7.md"])["Recipes"]["read-events-again"]
    program = paragraph.partition("<<'END'\n")[2].partition("END\n")[0]
    with living(base, {"ZOEFS_ROTATE_BYTES": "500"}) as tree:
        tree.shell(AGENT.replace("r1", "told"))
        for n in range(6):
            tree.zoefs("send", "told", f"prompt {n}", "--wait")
        tree.zoefs("stop", "told")
        assert len(list((tree.home / "log" / "agents").glob("told.jsonl.*"))) > 1
        (base / "reader").write_text(program)
        for last in (0, 7, 20):
            told = tree.shell(f"{sys.executable} {base}/reader {last}").stdout.splitlines()
            assert [int(line.split()[0]) for line in told] == list(range(last + 1, last + 1 + len(told)))
            assert told[-1].endswith(" verb-done"), "the stop is the last that was noted"
        assert tree.shell(f"{sys.executable} {base}/reader {last + len(told)}").stdout == "", "all was told by then"


def _events(tree: Tree, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tree.agent(name) / "events").read_text().splitlines()]

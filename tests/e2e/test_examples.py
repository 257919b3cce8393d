"""Every example of the manual is run as it is printed, says what it promises, and leaves the tree as it found it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.living import Tree

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

SAYS = {
    "hello.sh": "hello, world\n",
    "fan-in.sh": "".join(f"to do: reviewer {n} read a draft\n" for n in range(1, 6)),
    "pull.sh": "     20 3231941463 108894\n",
    "tiny-supervisor.sh": "attempt 1: flaky is failed, reason: cwd-missing; restart\nflaky is await and says 4\n",
    "tiny-conductor.sh": """\
draft 1: teh cta adn teh dgo
      1 no issues
      1 s/adn/and/
      1 s/cta/cat/
      1 s/dgo/dog/
      1 s/teh/the/
draft 2: the cat and teh dog
      4 no issues
      1 s/teh/the/
draft 3: the cat and the dog
      5 no issues
""",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_examples_are_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 30


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("name", SAYS)
def test_example(tree: Tree, name: str, shell: str, tmp_path: Path) -> None:
    before = sorted(os.listdir(tree.mount / "agents"))
    env = {**tree.env, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [shell, EXAMPLES / name], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    assert done.stdout == SAYS[name]
    assert done.returncode == 0
    assert sorted(os.listdir(tree.mount / "agents")) == before
    assert os.listdir(tmp_path) == []

"""A living tree whose agents are a real CLI that talks to its fake model, with nothing of the caller's but PATH.

Here is what is the same for every CLI, and claude; other CLIs have a module each.

No binary is a skip on a developer's machine and a failure where `CI` is set: there nothing may be left out silently.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import attrs
import pytest

from tests.fakes.anthropic import AnthropicFake
from tests.fakes.install_clis import CLAUDE, Cli, NotInstalled, find
from tests.fakes.server import Fake
from tests.living import Tree, living

PASSED = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_MAX_RETRIES")
AT_ONCE = "restart = { floor = 0.05, cap = 0.05, burst = 1000 }\n"
"""More of a spec: a CLI that died is started again without the second of grace, however often it dies."""


def spec_of(backend: str, passed: tuple[str, ...]) -> str:
    """A spec of this backend that hands these variables on."""
    return f'backend = "{backend}"\nenv = [{", ".join(repr(name) for name in passed)}]\n'.replace("'", '"')


def binary_of(cli: Cli) -> Path:
    """The real CLI. Without one: skipped, or failed where CI is set."""
    try:
        found = find(cli)
        missing = f"there is no {cli.name} here"
    except NotInstalled as error:
        found, missing = None, str(error).rstrip(".")
    if found is not None:
        return found
    sentence = f"{missing}: run python -m tests.fakes.install_clis, or let {cli.variable} name the binary"
    if os.environ.get("CI"):
        pytest.fail(f"CI must drive the real {cli.name} CLI, and {sentence}")
    pytest.skip(sentence)


@attrs.frozen
class CliTree:
    """A living tree, the model behind it, and the spec of an agent."""

    tree: Tree
    fake: Fake

    spec: ClassVar[str]

    def make(self, name: str, more: str = "") -> Path:
        """Make an agent; `more` is added to its spec."""
        return self.tree.make(name, self.spec + more)

    def turn(self, name: str, text: str, id: str) -> str:
        """Send a prompt and return its answer; it must be done."""
        (self.tree.agent(name) / "inbox" / id).write_text(text)
        fate, answer = self.tree.ended(name, id)
        assert fate == "done", (fate, answer, (self.tree.agent(name) / "error").read_text())
        return answer.decode()

    def history(self) -> list[str]:
        """The user texts of the newest model call of a turn."""
        return self.fake.user_texts(self.fake.turns()[-1])

    def asked(self, text: str) -> int:
        """How many model calls had this text as their current prompt."""
        return sum(self.fake.user_texts(turn)[-1:] == [text] for turn in self.fake.turns())


class ClaudeTree(CliTree):
    """The tree of claude agents."""

    spec = spec_of("claude", PASSED)


def empty_home(base: Path) -> dict[str, str]:
    """A HOME without a file: what the caller's shells do when they log in is no part of a test."""
    path = base / "user"
    path.mkdir()
    return {"HOME": str(path)}


@contextlib.contextmanager
def claude_tree(base: Path) -> Iterator[ClaudeTree]:
    """Both daemons, a fake model, and the environment by which the CLI finds it."""
    binary = binary_of(CLAUDE)
    with AnthropicFake(base / "model.jsonl") as fake:
        given = (fake.url, "dummy", str(base / "config"), "1")
        extra = {**dict(zip(PASSED, given, strict=True)), CLAUDE.variable: str(binary)} | empty_home(base)
        with living(base, extra) as tree:
            yield ClaudeTree(tree, fake)

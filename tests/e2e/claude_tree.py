"""A living tree whose claude agents talk to the fake model: the real CLI, with nothing of the caller's but PATH.

No binary is a skip on a developer's machine and a failure where `CI` is set: there nothing may be left out silently.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.fakes.anthropic import AnthropicFake, user_texts
from tests.fakes.install_clis import NotInstalled, find_claude
from tests.living import Tree, living

PASSED = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_MAX_RETRIES")
SPEC = f'backend = "claude"\nenv = [{", ".join(repr(name) for name in PASSED)}]\n'.replace("'", '"')
AT_ONCE = "restart = { floor = 0.05, cap = 0.05, burst = 1000 }\n"
"""More of a spec: a CLI that died is started again without the second of grace, however often it dies."""


def claude_binary() -> Path:
    """The real CLI. Without one: skipped, or failed where CI is set."""
    try:
        found = find_claude()
        missing = "there is no claude here"
    except NotInstalled as error:
        found, missing = None, str(error).rstrip(".")
    if found is not None:
        return found
    sentence = f"{missing}: run python -m tests.fakes.install_clis, or let ZOEFS_CLAUDE name the binary"
    if os.environ.get("CI"):
        pytest.fail(f"CI must drive the real claude CLI, and {sentence}")
    pytest.skip(sentence)


@attrs.frozen
class ClaudeTree:
    """A living tree and the model behind it."""

    tree: Tree
    fake: AnthropicFake

    def make(self, name: str, more: str = "") -> Path:
        """Make a claude agent; `more` is added to its spec."""
        return self.tree.make(name, SPEC + more)

    def turn(self, name: str, text: str, id: str) -> str:
        """Send a prompt and return its answer; it must be done."""
        (self.tree.agent(name) / "inbox" / id).write_text(text)
        fate, answer = self.tree.ended(name, id)
        assert fate == "done", (fate, answer, (self.tree.agent(name) / "error").read_text())
        return answer.decode()

    def history(self) -> list[str]:
        """The user texts of the newest model call of a turn."""
        return user_texts(self.fake.turns()[-1]["body"])

    def asked(self, text: str) -> int:
        """How many model calls had this text as their current prompt."""
        return sum(user_texts(turn["body"])[-1:] == [text] for turn in self.fake.turns())


@contextlib.contextmanager
def claude_tree(base: Path) -> Iterator[ClaudeTree]:
    """Both daemons, a fake model, and the environment by which the CLI finds it."""
    binary = claude_binary()
    with AnthropicFake(base / "model.jsonl") as fake:
        given = (fake.url, "dummy", str(base / "config"), "1")
        extra = {**dict(zip(PASSED, given, strict=True)), "ZOEFS_CLAUDE": str(binary)}
        with living(base, extra) as tree:
            yield ClaudeTree(tree, fake)

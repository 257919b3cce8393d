"""A living tree whose codex agents talk to the fake model: the real CLI, with a CODEX_HOME of its own.

The home's config closes the run: without `plugins = false` codex asks github.com at every start, and with its
unbounded retries a model that is away would hold a turn for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.claude_tree import CliTree, binary_of, empty_home, spec_of
from tests.fakes.install_clis import CODEX
from tests.fakes.openai import OpenAIFake
from tests.living import living

PASSED = ("CODEX_HOME", "FAKE_API_KEY")
CONFIG = """\
model = "fake-model"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_API_KEY"
request_max_retries = 1
stream_max_retries = 1
supports_websockets = false

[features]
plugins = false
shell_snapshot = false
unbounded_connection_retries = false
default_mode_request_user_input = true

[analytics]
enabled = false

[feedback]
enabled = false
"""


class CodexTree(CliTree):
    """The tree of codex agents."""

    spec = spec_of("codex", PASSED)


def codex_home(path: Path, url: str) -> dict[str, str]:
    """Make a CODEX_HOME whose provider is the fake at `url`; the variables by which the CLI finds both."""
    path.mkdir()
    (path / "config.toml").write_text(CONFIG.format(url=url))
    return dict(zip(PASSED, (str(path), "dummy"), strict=True))


@contextlib.contextmanager
def codex_tree(base: Path) -> Iterator[CodexTree]:
    """Both daemons, a fake model, and the environment by which the CLI finds it."""
    binary = binary_of(CODEX)
    with OpenAIFake(base / "model.jsonl") as fake:
        extra = {**codex_home(base / "codex", fake.url), CODEX.variable: str(binary)} | empty_home(base)
        with living(base, extra) as tree:
            yield CodexTree(tree, fake)

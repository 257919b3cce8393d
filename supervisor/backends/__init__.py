"""How each kind of CLI is driven: one codec a file, one row here. The contract's half is zoefs.contract.backends."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.backends.claude import ClaudeCodec
from supervisor.backends.codec import Codec, Setup
from supervisor.backends.codex import CodexCodec
from supervisor.backends.exec import ExecCodec

CODECS: dict[str, Callable[[Setup], Codec]] = {"claude": ClaudeCodec, "codex": CodexCodec, "exec": ExecCodec}

__all__ = ["CODECS", "Codec", "Setup"]

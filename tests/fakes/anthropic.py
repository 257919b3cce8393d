"""The fake Anthropic Messages server, for claude.

    python anthropic.py [--port 0] [--log FILE]

Its endpoints are the routes of the handler; it answers whole or as a stream, as the request says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.fakes import anthropic_script
from tests.fakes.anthropic_script import user_texts
from tests.fakes.script import Dialect
from tests.fakes.server import Fake, Handler, Routes, serve

__all__ = ["AnthropicFake", "user_texts"]

MESSAGES = "/v1/messages"


class AnthropicFake(Fake):
    """The server as a child process."""

    dialect: ClassVar[Dialect] = anthropic_script
    program = __file__
    calls = MESSAGES


class _Handler(Handler):
    dialect: ClassVar[Dialect] = anthropic_script
    session_header = "x-claude-code-session-id"

    def count_tokens(self, body: Any) -> None:
        self.send(200, {"input_tokens": len(json.dumps(body)) // 4})

    def models(self, body: Any) -> None:
        model = {"type": "model", "id": "fake-model", "display_name": "Fake", "created_at": "2026-01-01T00:00:00Z"}
        self.send(200, {"data": [model], "has_more": False, "first_id": "fake-model", "last_id": "fake-model"})

    def hello(self, body: Any) -> None:
        self.send(200, None)

    routes: ClassVar[Routes] = {
        ("POST", MESSAGES): Handler.model_call,
        ("POST", MESSAGES + "/count_tokens"): count_tokens,
        ("GET", "/v1/models"): models,
        ("HEAD", "/"): hello,
        ("HEAD", "/api/hello"): hello,
    }


if __name__ == "__main__":
    serve(_Handler, "Anthropic Messages")

"""The fake OpenAI Responses server, for codex. A provider's base URL is `fake.url + "/v1"`.

    python openai.py [--port 0] [--log FILE]

Its endpoints are the routes of the handler; it answers whole or as a stream, as the request says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.fakes import openai_script
from tests.fakes.openai_script import user_texts
from tests.fakes.script import Dialect
from tests.fakes.server import Fake, Handler, Routes, serve

__all__ = ["OpenAIFake", "user_texts"]

RESPONSES = "/v1/responses"


class OpenAIFake(Fake):
    """The server as a child process."""

    dialect: ClassVar[Dialect] = openai_script
    program = __file__
    calls = RESPONSES


class _Handler(Handler):
    dialect: ClassVar[Dialect] = openai_script
    session_header = "thread-id"

    def models(self, body: Any) -> None:
        model = {"id": "fake-model", "object": "model", "created": 1, "owned_by": "fake"}
        self.send(200, {"object": "list", "data": [model]})

    routes: ClassVar[Routes] = {
        ("POST", RESPONSES): Handler.model_call,
        ("GET", "/v1/models"): models,
    }


if __name__ == "__main__":
    serve(_Handler, "OpenAI Responses")

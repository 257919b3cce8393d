"""exec: any program. One process a turn; the prompt is its stdin, its stdout is the answer, exit 0 is done.

There is no protocol, so there is nothing to decode: the supervisor takes the whole of stdout when it exits.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from supervisor.backends.codec import Death, Decoded, Setup
from zoefs.contract.asks import Ask, Verdict
from zoefs.contract.words import Reason

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


@attrs.frozen
class ExecCodec:
    """See module."""

    setup: Setup

    def argv(self) -> list[str]:
        """The spec's argv with {session} {turn} {name} filled in; other braces stay as they are."""
        filled = {"{session}": self.setup.session, "{turn}": str(self.setup.turn), "{name}": self.setup.name}
        words = [self.setup.binary, *self.setup.spec.argv[1:], *self.setup.spec.args]
        for mark, value in filled.items():
            words = [word.replace(mark, value) for word in words]
        return words

    def environment(self) -> Mapping[str, str]:
        """Nothing beyond the spec's."""
        return {}

    def hello(self) -> bytes:
        """No handshake."""
        return b""

    def prompt(self, message: str, text: str) -> bytes:
        """Not written: stdin is the prompt's file."""
        return b""

    def expect(self, message: str) -> None:
        """Nothing is matched."""

    def interrupt(self) -> bytes:
        """No message: the supervisor sends TERM."""
        return b""

    def answer(self, ask: Ask, verdict: Verdict) -> bytes:
        """Never asked."""
        return b""

    def steer(self, id: str, message: str, text: str) -> bytes:
        """It cannot: stdin is the prompt's file."""
        return b""

    def expect_steer(self, id: str, message: str, text: str) -> bytes:
        """Never written."""
        return b""

    def compact(self, message: str) -> bytes:
        """It has no history."""
        return b""

    def expect_compact(self, message: str) -> bytes:
        """It has no history."""
        return b""

    def decode(self, line: bytes) -> list[Decoded]:
        """Nothing in stdout has a meaning before the end."""
        return []

    def take(self) -> bytes:
        """Nothing."""
        return b""

    def partial(self) -> str:
        """The supervisor reads stdout itself."""
        return ""

    def death(self, rc: int, last_words: str) -> Death:
        """Exit codes of the shell's making mean a program that cannot be run."""
        if rc in (_NOT_FOUND, _NOT_EXECUTABLE) and last_words.startswith("env: "):
            return Death(Reason.CONFIG, f"{self.setup.spec.argv[0]}: {last_words.splitlines()[-1]}")
        return Death()

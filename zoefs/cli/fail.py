"""How a command ends badly: one sentence on stderr and an exit code of words.Exit, never a traceback."""

from __future__ import annotations

import sys


class Failure(Exception):
    """A person's or a part's fault. `code` is one of words.Exit; `sentence` says what is wrong and what helps."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence

    def show(self) -> None:
        """Say the sentence on stderr."""
        print(f"zoefs: {self.sentence}", file=sys.stderr)


def end(failures: list[Failure]) -> None:
    """Say every failure and raise the first, whose code the command ends with; return where there is none."""
    for failure in failures[1:]:
        failure.show()
    if failures:
        raise failures[0]

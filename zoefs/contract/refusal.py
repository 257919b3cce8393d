"""A user's mistake: an errno for the program and a sentence for the person."""

from __future__ import annotations

import errno as _errno


class Refusal(Exception):
    """Something was asked that may not be done now.

    `errno` is what the system call fails with; `sentence` names the object and what is permitted instead.
    """

    def __init__(self, errno: int, sentence: str) -> None:
        super().__init__(sentence)
        self.errno = errno
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{_errno.errorcode.get(self.errno, self.errno)}: {self.sentence}"

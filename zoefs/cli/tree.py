"""A client's hold on MOUNT: plain file operations, each under a deadline, each error turned into a Failure.

Rules. Whatever touches the mount runs in a thread that can be abandoned (`do`): a daemon that is stopped would hold
its callers for ever. A refusal's sentence is read from the agent's own `error`, where the mount has put it.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zoefs.cli.fail import Failure
from zoefs.contract.verbs import Command
from zoefs.contract.words import Exit, OrderId, is_agent_name

T = TypeVar("T")
PATIENCE = 10.0
"""Seconds after which a mount that does not answer is given up."""
PATIENCE_TO_WRITE = 120.0
"""The same for what waits for the disk: a prompt of 16 MiB, and its fsync."""
PATIENCE_TO_BEGIN = 60.0
"""The same for a mount that reads its agents."""

_GONE = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ESHUTDOWN})
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:?\d\d):?\s+")


def within(seconds: float, act: Callable[[], T]) -> T:
    """The result of `act`, or what it raised. Raises TimeoutError, and abandons it, after `seconds`."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(act())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


class Tree:
    """MOUNT as a client sees it."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.agents = mount / "agents"

    def agent(self, name: str) -> Path:
        """The directory of an agent. Raises Failure(NOT_FOUND) where no agent could have that name."""
        if not is_agent_name(name):
            raise Failure(Exit.NOT_FOUND, f"no agent can be named {name[:80]!r}")
        return self.agents / name

    def do(self, act: Callable[[], T], name: str = "", patience: float = PATIENCE) -> T:
        """Run `act`, which touches the mount (and the agent `name`). Raises Failure for every OSError."""
        try:
            return within(patience, act)
        except TimeoutError:
            raise Failure(Exit.NOT_RUNNING, f"the mount at {self.mount} does not answer") from None
        except OSError as error:
            raise self._failure(error, name) from None

    def text(self, path: Path, name: str = "") -> str:
        """The text of a file, whatever its bytes."""
        return self.do(path.read_bytes, name).decode(errors="replace")

    def table(self) -> list[list[str]]:
        """The cells of `agents/list`, its header first. A mount that has just started reads its agents first."""
        deadline = time.monotonic() + PATIENCE_TO_BEGIN

        def look() -> bytes:
            while True:
                try:
                    return (self.agents / "list").read_bytes()
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise

        text = self.do(look, patience=PATIENCE_TO_BEGIN + PATIENCE).decode(errors="replace")
        return [line.split("\t") for line in text.splitlines() if line]

    def fields(self, path: Path, name: str = "") -> dict[str, str]:
        """The `key: value` lines of a file, up to its first empty line."""
        return fields(self.do(path.read_bytes, name))

    def _failure(self, error: OSError, name: str) -> Failure:
        """What an error of the mount means to a person."""

        acting = name
        if not name and error.errno == errno.EACCES:
            acting = os.environ.get("ZOEFS_AGENT", "")  # what no agent's file can say stands in that of who acts

        def look() -> tuple[bool, bool, str]:
            agent = self.agents / name
            said = _said(self.agents / acting / "error") if acting else ""
            return self.agents.is_dir(), not name or agent.is_dir(), said

        try:
            served, known, said = within(PATIENCE, look)
        except (OSError, TimeoutError):
            served, known, said = False, False, ""
        if error.errno in _GONE or not served:
            return Failure(Exit.NOT_RUNNING, f"nothing is mounted at {self.mount}; run: zoefs up")
        if not known:
            return Failure(Exit.NOT_FOUND, f"no agent {name}; zoefs ls lists those there are")
        plain = f"{os.strerror(error.errno or 0)}: {error.filename2 or error.filename or self.mount}"
        if error.errno == errno.ENOENT:
            return Failure(Exit.NOT_FOUND, plain)
        return Failure(Exit.REFUSED, f"{acting}: {said}" if said else plain)


def _said(path: Path) -> str:
    """The sentence of an agent's `error`, without its time."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return _TIME.sub("", lines[0]) if lines else ""


def fields(data: bytes) -> dict[str, str]:
    """The `key: value` lines of `data`, up to the first empty line."""
    head = data.partition(b"\n\n")[0].decode(errors="replace")
    pairs = (line.partition(":") for line in head.split("\n"))
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def give(tree: Tree, name: str, command: Command) -> OrderId:
    """Write one verb to an agent's `ctl`; returns its key, under which its fate is read. Raises Failure."""
    line = f"{command.encode()}\n".encode()
    path = tree.agent(name) / "ctl"

    def act() -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    tree.do(act, name, PATIENCE_TO_WRITE)
    return OrderId(command.key)

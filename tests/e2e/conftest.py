"""Fixtures of the tests that drive both real CLIs: one tree a CLI for all of them, one set of agents a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.both import KINDS, Both, Kind, both_of, one_test
from tests.e2e.claude_tree import CliTree

Opened = tuple[Kind, CliTree]


@pytest.fixture(scope="session")
def _opened() -> Iterator[Callable[[str], Opened]]:
    """The tree of a CLI, opened when it is first asked for, since its binary may be missing."""
    found: dict[str, Opened] = {}
    with contextlib.ExitStack() as stack:

        def open_one(kind: str) -> Opened:
            if kind not in found:
                path = Path(tempfile.mkdtemp(prefix="zoefs-", dir=os.environ.get("ZOEFS_TEST_DIR")))
                stack.callback(shutil.rmtree, path)
                found[kind] = stack.enter_context(both_of(kind, path))
            return found[kind]

        yield open_one


@pytest.fixture(params=KINDS)
def both(request: pytest.FixtureRequest, _opened: Callable[[str], Opened]) -> Iterator[Both]:
    """Each of the CLIs in turn."""
    with one_test(*_opened(request.param)) as found:
        yield found


@pytest.fixture
def only_claude(_opened: Callable[[str], Opened]) -> Iterator[Both]:
    """claude alone."""
    with one_test(*_opened("claude")) as found:
        yield found


@pytest.fixture
def only_codex(_opened: Callable[[str], Opened]) -> Iterator[Both]:
    """codex alone."""
    with one_test(*_opened("codex")) as found:
        yield found

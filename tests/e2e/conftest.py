"""Fixtures of the tests that drive both real CLIs: one tree a module and CLI, one set of agents a test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.both import KINDS, Both, Kind, both_of, one_test
from tests.e2e.claude_tree import CliTree


def _shared(kind: str) -> Iterator[tuple[Kind, CliTree]]:
    path = Path(tempfile.mkdtemp(prefix="zoefs-", dir=os.environ.get("ZOEFS_TEST_DIR")))
    with both_of(kind, path) as found:
        yield found
    shutil.rmtree(path)


@pytest.fixture(scope="module", params=KINDS)
def _tree_of_a_module(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, CliTree]]:
    yield from _shared(request.param)


@pytest.fixture
def both(_tree_of_a_module: tuple[Kind, CliTree]) -> Iterator[Both]:
    """Each of the CLIs in turn."""
    with one_test(*_tree_of_a_module) as found:
        yield found


@pytest.fixture(scope="module")
def _claude_of_a_module() -> Iterator[tuple[Kind, CliTree]]:
    yield from _shared("claude")


@pytest.fixture(scope="module")
def _codex_of_a_module() -> Iterator[tuple[Kind, CliTree]]:
    yield from _shared("codex")


@pytest.fixture
def only_claude(_claude_of_a_module: tuple[Kind, CliTree]) -> Iterator[Both]:
    """claude alone."""
    with one_test(*_claude_of_a_module) as found:
        yield found


@pytest.fixture
def only_codex(_codex_of_a_module: tuple[Kind, CliTree]) -> Iterator[Both]:
    """codex alone."""
    with one_test(*_codex_of_a_module) as found:
        yield found

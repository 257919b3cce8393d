"""Fixtures that several tiers share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.living import Tree, living


@pytest.fixture
def base() -> Iterator[Path]:
    """A fresh directory with a short path, removed afterwards; ZOEFS_TEST_DIR names another disk."""
    path = Path(tempfile.mkdtemp(prefix="zoefs-", dir=os.environ.get("ZOEFS_TEST_DIR")))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def tree(base: Path) -> Iterator[Tree]:
    """A living tree."""
    with living(base) as found:
        yield found


@pytest.fixture
def soak() -> bool:
    """Whether the full-size numbers are asked for (`make soak`)."""
    return os.environ.get("ZOEFS_SOAK") == "1"

"""Fixtures of the mount's tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.living import Tree, living

pytest.register_assert_rewrite("tests.mount.looks")


@pytest.fixture(scope="module")
def shared() -> Iterator[Tree]:
    """One living tree for a whole file: each test makes agents of its own, and both daemons stay up."""
    base = Path(tempfile.mkdtemp(prefix="zoefs-", dir=os.environ.get("ZOEFS_TEST_DIR")))
    try:
        with living(base) as found:
            yield found
    finally:
        shutil.rmtree(base)

"""A HOME of an earlier version gets the directories that it lacks, and keeps what it has."""

from __future__ import annotations

import stat
from pathlib import Path

from zoefs.contract.home import SHARED, Home
from zoefs.disk.layout import ensure


def test_missing_directories_are_made(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    ensure(home)
    (home.path / "tasks" / "kept").write_text("x")
    for name in ("channels", "bonfire", "hosts"):
        (home.path / name).rmdir()
    ensure(home)
    for name in (*SHARED, "hosts"):
        assert stat.S_IMODE((home.path / name).stat().st_mode) == 0o700
    assert (home.path / "tasks" / "kept").read_text() == "x"

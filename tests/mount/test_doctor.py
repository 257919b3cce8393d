"""`zoefs doctor` of a living tree, and of one whose mount was killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.living import Tree, living


def findings(tree: Tree) -> dict[str, dict[str, Any]]:
    """What it found, by check."""
    return {one["check"]: one for one in json.loads(tree.zoefs("doctor", "--json", check=False).stdout)}


def test_a_living_tree_is_well(shared: Tree) -> None:
    found = findings(shared)
    for check in ("fuse", "fusermount3", "home", "mount", "mount daemon", "supervisor", "python", "packages"):
        assert found[check]["state"] == "ok", found[check]


def test_a_stopped_mount_is_told_within_seconds_and_a_dead_one_too(base: Path) -> None:
    with living(base) as tree:
        tree.kill("mount", signal.SIGSTOP)
        try:
            found = findings(tree)
        finally:
            tree.kill("mount", signal.SIGCONT)
        assert (found["mount"]["state"], found["mount daemon"]["state"]) == ("fail", "fail")
        done = tree.zoefs("doctor", "--json", check=False)
        assert done.returncode == ("fail" in {one["state"] for one in json.loads(done.stdout)})
        tree.kill("supervisor")
        assert findings(tree)["supervisor"]["state"] == "warn"
        tree.up()

"""What the mount daemon has: descriptors, threads, tasks. Read from /proc and `metrics`."""

from __future__ import annotations

import collections
import os
import re
from pathlib import Path

import attrs

from tests.living import Tree
from zoefs.mount.tree import ROOT


@attrs.frozen
class Belongings:
    """See module. `descriptors`: what they lead to, each as often as it is open."""

    descriptors: collections.Counter[str]
    threads: int
    tasks: int

    def without_kept(self, tree: Tree) -> collections.Counter[str]:
        """The descriptors, without the directories of HOME shown through, of which the last used are kept open."""
        shown = [str(tree.home / row.name) for row in ROOT.values() if row.through is not None]
        kept = {path for path in self.descriptors if os.path.isdir(path) and path.startswith(tuple(shown))}
        return collections.Counter({path: n for path, n in self.descriptors.items() if path not in kept})


def belongings(tree: Tree) -> Belongings:
    """What it has now."""
    proc = Path(f"/proc/{tree.part('mount').mark.pid}")
    found = []
    for fd in os.listdir(proc / "fd"):
        try:
            found.append(os.readlink(proc / "fd" / fd))
        except FileNotFoundError:  # closed meanwhile
            continue
    tasks = re.search(r"^zoefs_tasks +(\d+)$", (tree.mount / "metrics").read_text(), re.MULTILINE)
    assert tasks is not None
    return Belongings(collections.Counter(found), len(os.listdir(proc / "task")), int(tasks[1]))

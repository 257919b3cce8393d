"""`help`: what it prints is what is served, with the modes that stat(2) shows, on two screens."""

from __future__ import annotations

import os
import stat

from tests.living import Tree
from zoefs.contract.verbs import VERBS
from zoefs.contract.words import Fate, Status
from zoefs.mount.tree import FILES, ROOT


def test_help_shows_every_file_as_it_is_served(shared: Tree) -> None:
    shared.make("shown", 'backend = "exec"\nargv = ["cat"]\n')
    text = (shared.mount / "help").read_text()
    agent, seen = "agents/shown/", set()
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and len(words[1]) == 10 and words[1][0] in "-d":
            name = agent + words[0] if line.startswith("  ") else words[0]
            assert stat.filemode(os.stat(shared.mount / name).st_mode) == words[1], name
            seen.add(name)
    listed = {*os.listdir(shared.mount), "agents/list"}
    listed |= {agent + name for name in (*os.listdir(shared.mount / agent), "wait")}
    assert seen == listed == {*ROOT, "agents/list", *(agent + name for name in FILES)}


def test_help_has_every_verb_status_and_fate(shared: Tree) -> None:
    lines = (shared.mount / "help").read_text().splitlines()
    for row in VERBS.values():
        assert any(line.startswith(f"  {row.usage} ") for line in lines), row.verb
    words = " ".join(lines).replace(".", " ").replace(":", " ").split()
    assert {*Status, *Fate} <= set(words)


def test_help_fits_on_two_screens(shared: Tree) -> None:
    lines = (shared.mount / "help").read_text().splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120

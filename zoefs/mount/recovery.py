"""What a mount finds that an earlier one left half done, and what becomes of it (guarantee 1).

A staged prompt that was accepted as a whole is committed, as `recovered`: its writer may have seen an error. One
that was cut off goes to `orders/cut/`, and its receipt says `lost`. Verbs and `out` that never counted are dropped:
their write(), or their close(), never returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import attrs

from zoefs.contract.home import PROMPTS, AgentHome, OrderKind, parse_stage
from zoefs.contract.words import SINGLE_WRITE_MAX
from zoefs.disk.files import names, size, sync_dir, sync_file


@attrs.frozen
class Found:
    """A staged prompt: `kind` is what became of it, `recovered` or `cut`."""

    kind: str
    id: str
    bytes: int


def recover(agent: AgentHome) -> Iterator[Found]:
    """Settle everything in `orders/tmp` but drafts; yields the prompts among it."""
    for file in names(agent.tmp):
        stage = parse_stage(file)
        path = agent.tmp / file
        if stage is None:
            continue
        length = size(path)
        if stage.order.kind not in PROMPTS or length == 0:
            path.unlink()
            continue
        whole = stage.is_whole(length, SINGLE_WRITE_MAX)
        sync_file(path)
        target = agent.new if whole else agent.cut
        os.rename(path, target / attrs.evolve(stage.order, kind=OrderKind.RECOVERED).name)
        sync_dir(target)
        yield Found("recovered" if whole else "cut", stage.order.id, length)

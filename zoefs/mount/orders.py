"""What waits for one agent on disk: the orders that its journal does not know yet.

Rules. Looking changes nothing, here as there: either all of it is told or an OSError is raised. The supervisor moves
orders while we look, from `new` to `taken` and, of claims that it never noted, back; so `new` is listed before and
after `taken`, and what was anywhere is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from zoefs.contract.home import PROMPTS, AgentHome, Order, OrderKind, parse_order
from zoefs.contract.lifecycle import Fold
from zoefs.contract.refusal import Refusal
from zoefs.contract.verbs import Command, parse_ctl
from zoefs.disk.files import names, read, size


@attrs.frozen
class Queued:
    """An order that waits: its bytes, and the verbs of a ctl order."""

    order: Order
    size: int
    commands: tuple[Command, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The names it goes by in `inbox/`: the prompt's, or the keys of its verbs."""
        if self.order.kind in PROMPTS:
            return (self.order.id,)
        return tuple(command.key for command in self.commands if command.key)


@attrs.frozen
class OnDisk:
    """The orders that wait, and the ids of prompts set aside whose fate the journal does not tell yet."""

    waiting: tuple[Queued, ...]
    cancelled: frozenset[str]
    cut: frozenset[str]


def look(home: AgentHome, fold: Fold, listed: Callable[[Path], list[str]] = names) -> OnDisk:
    """What is there and not in the fold. Raises OSError."""
    found: dict[str, Path] = {}
    for path in (home.new, home.taken, home.new):
        found |= dict.fromkeys(listed(path), path)
    orders = [(order, path) for name, path in found.items() if (order := parse_order(name)) is not None]
    open_ = [(order, path) for order, path in orders if _is_open(order, path == home.taken, fold)]
    verbs = {order.stamp for order, _ in open_ if order.kind is OrderKind.CTL}
    waiting = (
        _queued(order, path / order.name)
        for order, path in open_
        if not (order.kind is OrderKind.STEER and path == home.taken and order.stamp in verbs)
    )
    return OnDisk(tuple(waiting), _unnoted(listed(home.cancelled), fold), _unnoted(listed(home.cut), fold))


def _unnoted(listed: list[str], fold: Fold) -> frozenset[str]:
    orders = (parse_order(name) for name in listed)
    return frozenset(order.id for order in orders if order is not None and order.id not in fold.ids)


def _is_open(order: Order, taken: bool, fold: Fold) -> bool:
    match order.kind:
        case OrderKind.PROMPT | OrderKind.RECOVERED | OrderKind.STEER:
            return order.id not in fold.ids
        case OrderKind.CTL:
            return order.name not in fold.orders_done
        case OrderKind.OUT | OrderKind.ANSWER:
            return not taken and order.name not in fold.orders_done


def _queued(order: Order, path: Path) -> Queued:
    if order.kind is not OrderKind.CTL:
        return Queued(order, size(path))
    try:
        return Queued(order, size(path), tuple(parse_ctl(read(path) or b"")))
    except Refusal:
        return Queued(order, size(path))

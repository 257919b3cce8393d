"""Reading `inbox/ID` back: the fate of a prompt or of a keyed verb, and its answer.

A receipt is `key: value` lines, an empty line, and the answer once there is one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import attrs

from zoefs.cli.fail import Failure
from zoefs.cli.tree import Tree, fields
from zoefs.cli.watch import AGAIN, Deadline, Watch, absent, look
from zoefs.contract.words import FINAL, ORDER_ID_RULE, Exit, Fate, OrderId, Status, is_order_id

APPEARS = 3.0
"""Seconds within which a receipt must be there; one that is missing later was taken away."""


@attrs.frozen
class Shown:
    """A receipt as it is shown: the fate's word, a note that explains it, and the answer's bytes."""

    fate: str
    note: str
    answer: bytes

    @property
    def final(self) -> bool:
        """Whether it stays so for ever."""
        return self.fate in FINAL


def parse(data: bytes) -> Shown:
    """The receipt that `inbox/ID` showed. A fate of a later version is kept as it is, and is not final."""
    _, _, answer = data.partition(b"\n\n")
    head = fields(data)
    return Shown(head.get("receipt", ""), head.get("note", ""), answer)


def make_id(verb: str) -> OrderId:
    """An id nobody else makes: the verb, the time, the process, and chance."""
    return OrderId(f"{verb}-{time.time_ns():016x}-{os.getpid()}-{os.urandom(2).hex()}")


def check_id(text: str) -> OrderId:
    """`text` as an id. Raises Failure(REFUSED) where it is none."""
    if not is_order_id(text):
        raise Failure(Exit.REFUSED, f"no id {text[:80]!r}: an id is {ORDER_ID_RULE}")
    return OrderId(text)


def wait_for(tree: Tree, name: str, id: OrderId, deadline: Deadline) -> Shown:
    """The receipt once it is final.

    Raises Failure: TIMED_OUT after the deadline, NOT_RUNNING while no supervisor works, NOT_FOUND where the agent or
    the receipt is gone.
    """
    path = tree.agent(name) / "inbox" / id
    appears = time.monotonic() + APPEARS

    def read() -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            if time.monotonic() > appears:
                raise
            return b""

    with Watch(tree) as watch:
        while not (shown := parse(tree.do(read, name))).final:
            seen = look(tree, name)
            if (shown := parse(tree.do(read, name))).final:  # as it is by then: the look tells of no earlier moment
                break
            if not seen.supervised:
                why = absent(tree)
                raise Failure(why.code, f"{id} is {shown.fate or 'unknown'} and stays so; {why.sentence}")
            if shown.fate == Fate.QUEUED and seen.status in (Status.FAILED, Status.STOPPED) and not seen.pending:
                raise Failure(Exit.FAILED, f"{name} is {seen.status}; {id} is queued until it is started ({path})")
            if deadline.passed:
                raise Failure(Exit.TIMED_OUT, f"{name}: {id} is {shown.fate or 'unknown'}; it goes on, see {path}")
            watch.pause({name: seen.status}, deadline.left(AGAIN))
    return shown


def judge(name: str, id: OrderId, shown: Shown, path: Path) -> list[Failure]:
    """The failure that a final receipt stands for; none where it is done."""
    if shown.fate == Fate.DONE:
        return []
    return [Failure(Exit.FAILED, f"{name}: {id} ended {shown.fate}{': ' + shown.note if shown.note else ''} ({path})")]

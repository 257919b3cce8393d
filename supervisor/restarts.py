"""When a dead CLI is started again. Pure: data in, data out; the policy is the spec's `restart` table.

Rule. The first death within a quiet time waits `floor`, each further one twice as long, at most `cap`, plus up to a
quarter as jitter made from the agent's name. A run of `stable` seconds forgets what was before. `burst` deaths within
`window` seconds give the agent up as `crash-loop`; `restart` clears that.
"""

from __future__ import annotations

import hashlib

import attrs

from zoefs.contract.lifecycle import Life
from zoefs.contract.spec import Restart
from zoefs.contract.words import Reason


@attrs.frozen
class Next:
    """What follows an exit: where the agent stands, from when it may start again, and why it is given up."""

    life: Life
    until: float = 0.0
    reason: str = ""
    text: str = ""


def jitter(name: str) -> float:
    """A number in 0..1 that is the same for the same name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32


def after_death(policy: Restart, name: str, deaths: tuple[float, ...], lived: float, now: float, what: str) -> Next:
    """What follows the death of a CLI at `now`.

    `deaths`: the times, in seconds, of earlier deaths that count, oldest first. `lived`: how many seconds this
    incarnation ran. `what`: the death in words.
    """
    if policy.when == "never":
        return Next(Life.FAILED, reason=Reason.CRASH_LOOP, text=f"the CLI {what}; its spec says: restart never")
    recent = () if lived >= policy.stable else tuple(t for t in deaths if now - t <= policy.window)
    if len(recent) + 1 >= policy.burst:
        text = f"the CLI {what}, {len(recent) + 1} times within {policy.window:g} s; `restart` tries again"
        return Next(Life.FAILED, reason=Reason.CRASH_LOOP, text=text)
    delay = min(policy.cap, policy.floor * 2.0 ** len(recent))
    return Next(Life.BACKOFF, until=now + delay * (1 + jitter(name) / 4), text=f"the CLI {what}")


def in_words(rc: int | None) -> str:
    """A shell exit code as a sentence's verb: 128+n is signal n; None is a keeper that could not tell."""
    if rc is None:
        return "was lost with its keeper"
    return f"was killed by signal {rc - 128}" if rc > 128 else f"exited with {rc}"

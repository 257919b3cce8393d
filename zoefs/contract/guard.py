"""Who may write what: the table of what an agent may do to the tree from inside (guarantee 8).

Rules. A person may do whatever the modes permit; this page is about agents. What no row of RULES permits is refused.
Reading is never judged. What an agent makes is capped at what it is itself: one row of CAPS for each key of a spec
that could widen it, every other key stands in FREE.

Theory. Permission is ordered `deny` < `ask` < `allow`. A word of the CLI's own, and an exec agent's program, tell us
nothing of their width: such an agent acts as `ask` and is acted upon as `allow`. So does one whose unanswered asks
are allowed in time. Two agents of the same backend and the same words are alike whatever these mean.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

import attrs

from zoefs.contract.spec import Spec


class What(StrEnum):
    """What is to be written."""

    IN = "in"
    INBOX = "inbox/"
    OUT = "out"
    CTL = "ctl"
    SPEC = "spec"
    MKDIR = "mkdir"
    RMDIR = "rmdir"
    TASKS_NEW = "tasks/new"
    CONTEXT = "context/"
    ELSEWHERE = "elsewhere"
    """Whatever else of the tree, also through the directories of HOME that it shows."""


class Whose(StrEnum):
    """Whose it is, as the agent that writes sees it. Several may hold."""

    ITS_OWN = "its own"
    PEER = "a peer"
    WIDER = "a peer of wider permission"
    MADE = "an agent that it made and that was never started"
    NOBODY = "no agent's"


class Leave(StrEnum):
    """What the spec of the agent that writes must say for it."""

    ALWAYS = ""
    PROMPT_WIDER = "prompt_wider"
    SPAWN = "spawn"


@attrs.frozen
class Rule:
    """An agent may write `what` of `whose`, where its spec gives `leave`."""

    what: What
    whose: Whose
    leave: Leave = Leave.ALWAYS


RULES: tuple[Rule, ...] = (
    Rule(What.IN, Whose.PEER),
    Rule(What.IN, Whose.WIDER, Leave.PROMPT_WIDER),
    Rule(What.INBOX, Whose.PEER),
    Rule(What.INBOX, Whose.WIDER, Leave.PROMPT_WIDER),
    Rule(What.OUT, Whose.ITS_OWN),
    Rule(What.MKDIR, Whose.NOBODY, Leave.SPAWN),
    Rule(What.SPEC, Whose.MADE, Leave.SPAWN),
    Rule(What.RMDIR, Whose.MADE, Leave.SPAWN),
    Rule(What.TASKS_NEW, Whose.NOBODY),
    Rule(What.CONTEXT, Whose.NOBODY),
)
"""All that an agent may write."""

PERMITTED = "from inside an agent only peers' in and inbox/, its own out, tasks/new and context/ are writable"


@attrs.frozen
class Opener:
    """An agent that acts. `name` is empty where nobody knows which one it is: it may then do least. `id` is its born
    word, which no other agent ever has."""

    name: str = ""
    id: str = ""
    spec: Spec | None = None

    @property
    def who(self) -> str:
        """How it is called in a sentence."""
        return f"agent {self.name}" if self.name else "an agent that nobody knows"


@attrs.frozen
class Target:
    """The agent that is acted upon. `maker`: the born word of the agent that made it, empty for a person."""

    name: str
    spec: Spec
    maker: str = ""
    started: bool = False


_SHOWN = {("tasks", "new"): What.TASKS_NEW, ("context",): What.CONTEXT}
"""What is below these directories of HOME that MOUNT shows, the directories themselves not."""


def what_of(path: tuple[str, ...]) -> What:
    """What a file is that HOME's directories show; `path` are the names that lead to it from the top of HOME."""
    return next(
        (what for above, what in _SHOWN.items() if path[: len(above)] == above and path != above), What.ELSEWHERE
    )


def may(opener: Opener | None, what: What, target: Target | None = None, place: str = "") -> str:
    """Why this may not be written, as a sentence; empty where it may. No `opener` is a person.

    `place` is how the file is called in the sentence.
    """
    if opener is None:
        return ""
    whose = whose_is(opener, target)
    rules = [rule for rule in RULES if rule.what is what and rule.whose in whose]
    if any(_gives(opener, rule.leave) for rule in rules):
        return ""
    need = next((rule for rule in rules if rule.leave), None)
    acts = {What.MKDIR: "make an agent", What.RMDIR: f"retire {target.name if target else 'an agent'}"}
    place = place or (f"{target.name}/{what}" if target else what)
    sentence = f"{opener.who} may not {acts.get(what, f'write {place}')}"
    if need is None:
        return f"{sentence}: {PERMITTED}"
    reason = " of wider permission than its own" if need.whose is Whose.WIDER else ""
    return f"{sentence}{reason} without {need.leave} = true in its spec"


def whose_is(opener: Opener, target: Target | None) -> frozenset[Whose]:
    """What the target is to the agent that acts."""
    if target is None:
        return frozenset({Whose.NOBODY})
    if opener.name == target.name:
        return frozenset({Whose.ITS_OWN})
    found = {Whose.WIDER if is_wider(target.spec, opener.spec) else Whose.PEER}
    if opener.id and target.maker == opener.id and not target.started:
        found.add(Whose.MADE)
    return frozenset(found)


def _gives(opener: Opener, leave: Leave) -> bool:
    """Whether the spec of the agent that acts gives this leave."""
    return not leave or (opener.spec is not None and bool(getattr(opener.spec, leave)))


# -- how wide a permission is -----------------------------------------------------------------------------------------


class Width(IntEnum):
    """The words of `permission` that zoefs itself understands, in their order."""

    DENY = 0
    ASK = 1
    ALLOW = 2


_WIDTHS = {"": Width.ASK, **{width.name.lower(): width for width in Width}}


def _is_vague(spec: Spec) -> bool:
    """Whether what it may do is more than its word tells."""
    width = _WIDTHS.get(spec.permission)
    unanswered = width is Width.ASK and spec.ask_default == "allow" and spec.ask_timeout > 0
    return spec.backend == "exec" or width is None or unanswered


def acts_as(spec: Spec | None) -> Width:
    """How wide an agent is when it acts; an unknown one is as narrow as can be."""
    if spec is None:
        return Width.DENY
    width = _WIDTHS.get(spec.permission, Width.ASK)
    return min(width, Width.ASK) if _is_vague(spec) else width


def counts_as(spec: Spec) -> Width:
    """How wide an agent is when it is acted upon."""
    return Width.ALLOW if _is_vague(spec) else _WIDTHS[spec.permission]


def _words(spec: Spec) -> tuple[object, ...]:
    """What makes two agents alike."""
    return (spec.backend, spec.permission or "ask", spec.ask_default if spec.ask_timeout else "deny")


def is_wider(spec: Spec, own: Spec | None) -> bool:
    """Whether an agent of this spec may do more than one whose spec is `own`, as far as their permissions tell."""
    return counts_as(spec) > acts_as(own) and (own is None or _words(spec) != _words(own))


# -- what an agent may make -------------------------------------------------------------------------------------------


def _only_with_own(value: Any, own: Any) -> bool:
    return not value or bool(own)


def _same_or_none(value: Any, own: Any) -> bool:
    return not value or value == own


def _some_of_own(value: Any, own: Any) -> bool:
    return set(value or ()) <= set(own or ())


def _at_most_own(value: Any, own: Any) -> bool:
    return not own or (bool(value) and value <= own)


def _same(value: Any, own: Any) -> bool:
    return bool(value == own)


@attrs.frozen
class Cap:
    """A key of a spec that an agent may not set at will for what it makes. `fits` compares it with the maker's own;
    `must` says in words what it must be."""

    key: str
    fits: Callable[[Any, Any], bool]
    must: str


CAPS: dict[str, Cap] = {
    row.key: row
    for row in (
        Cap("prompt_wider", _only_with_own, "set only where the maker's own is"),
        Cap("args", _same_or_none, "left out, or the maker's own: arguments may say what permission does not"),
        Cap("env", _some_of_own, "names among the maker's own"),
        Cap("env_file", _same_or_none, "left out, or the maker's own"),
        Cap("budget_usd", _at_most_own, "at most the maker's own"),
        Cap("launcher", _same, "the maker's own"),
    )
}
"""Beside `permission`, which `is_wider` compares. A key that this version does not know yet is None on both sides."""

FREE = frozenset(
    "backend cwd model prompt argv ask_timeout ask_default fork turn_timeout restart on_lost spawn".split()
)
"""Keys that widen nothing by themselves: whoever may make an agent may set them. What backend and asks permit is part
of the permission's width; spawn can only be given by who has it."""


def exceeds(spec: Spec, own: Spec | None) -> str:
    """Why an agent whose spec is `own` may not make one of this spec, as a sentence; empty where it may."""
    if own is None:
        return "nobody knows which agent makes it"
    if is_wider(spec, own):
        words = f"permission {spec.permission or 'ask'!r} of a {spec.backend} agent"
        return f"{words} is wider than the maker's own {own.permission or 'ask'!r} of a {own.backend} agent"
    for cap in CAPS.values():
        if cap.key == "args" and acts_as(own) is Width.ALLOW:
            continue
        if not cap.fits(getattr(spec, cap.key, None), getattr(own, cap.key, None)):
            return f"{cap.key} must be {cap.must}"
    return ""

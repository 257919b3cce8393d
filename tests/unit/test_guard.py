"""What an agent may write from inside, row by row: permissions in their order, and what it may make."""

from __future__ import annotations

import itertools

import attrs
import pytest

from zoefs.contract.guard import (
    CAPS,
    FREE,
    PERMITTED,
    RULES,
    Opener,
    Target,
    What,
    Whose,
    exceeds,
    is_wider,
    may,
    what_of,
    whose_is,
)
from zoefs.contract.spec import KEYS, Spec

ASK = Spec(backend="claude")
ALLOW = Spec(backend="claude", permission="allow")
DENY = Spec(backend="claude", permission="deny")
PLAN = Spec(backend="claude", permission="plan")
EXEC = Spec(backend="exec", argv=("cat",))
TIMED = Spec(backend="claude", ask_timeout=5.0, ask_default="allow")


def opener(spec: Spec | None = ASK, name: str = "a", **more: bool) -> Opener:
    return Opener(name, f"born-{name}", attrs.evolve(spec, **more) if spec else None)  # type: ignore[arg-type]


def target(spec: Spec = ASK, name: str = "b", maker: str = "", started: bool = False) -> Target:
    return Target(name, spec, maker, started)


OWN, PEER, WIDER, MADE = target(name="a"), target(), target(ALLOW), target(maker="born-a")
SPAWNS, DARES = opener(spawn=True), opener(prompt_wider=True)
BOTH = (What.IN, What.INBOX)


@pytest.mark.parametrize("what", What)
@pytest.mark.parametrize("aim", [None, OWN, PEER, WIDER, MADE])
def test_a_person_may_do_everything(what: What, aim: Target | None) -> None:
    assert may(None, what, aim) == ""


@pytest.mark.parametrize(
    ("who", "aim", "permitted"),
    [
        (opener(), OWN, {What.OUT}),
        (opener(), PEER, {*BOTH}),
        (opener(), WIDER, set()),
        (opener(), MADE, {*BOTH}),
        (opener(), None, {What.TASKS_NEW, What.CONTEXT}),
        (SPAWNS, OWN, {What.OUT}),
        (SPAWNS, PEER, {*BOTH}),
        (SPAWNS, WIDER, set()),
        (SPAWNS, MADE, {*BOTH, What.SPEC, What.RMDIR}),
        (SPAWNS, target(maker="born-a", started=True), {*BOTH}),
        (SPAWNS, target(maker="born-b"), {*BOTH}),
        (SPAWNS, None, {What.TASKS_NEW, What.CONTEXT, What.MKDIR}),
        (DARES, WIDER, {*BOTH}),
        (DARES, OWN, {What.OUT}),
        (DARES, None, {What.TASKS_NEW, What.CONTEXT}),
        (Opener(), PEER, set()),
        (Opener(), target(DENY), {*BOTH}),
        (Opener(), target(maker=""), set()),
        (Opener(), None, {What.TASKS_NEW, What.CONTEXT}),
    ],
)
def test_what_an_agent_may_write(who: Opener, aim: Target | None, permitted: set[What]) -> None:
    assert {what for what in What if not may(who, what, aim)} == permitted


def test_a_refusal_names_who_what_and_what_would_permit_it() -> None:
    assert may(opener(), What.CTL, PEER).startswith("agent a may not write b/ctl: from inside an agent only")
    assert may(opener(), What.MKDIR) == "agent a may not make an agent without spawn = true in its spec"
    told = "agent a may not write b/in of wider permission than its own without prompt_wider = true in its spec"
    assert may(opener(), What.IN, WIDER) == told
    assert may(opener(), What.RMDIR, PEER).startswith("agent a may not retire b: ")
    assert may(Opener(), What.CTL, PEER).startswith("an agent that nobody knows may not write b/ctl")


def test_every_row_can_be_reached_and_nothing_is_permitted_elsewhere() -> None:
    assert len({(rule.what, rule.whose) for rule in RULES}) == len(RULES)
    assert not [rule for rule in RULES if rule.what in (What.CTL, What.ELSEWHERE)]
    assert whose_is(opener(), None) == {Whose.NOBODY}


@pytest.mark.parametrize(
    ("own", "narrow", "wide"),
    [
        (DENY, [DENY], [ASK, ALLOW, PLAN, EXEC, TIMED]),
        (ASK, [DENY, ASK], [ALLOW, PLAN, EXEC, TIMED]),
        (ALLOW, [DENY, ASK, ALLOW, PLAN, EXEC, TIMED], []),
        (PLAN, [DENY, ASK, PLAN], [ALLOW, EXEC, TIMED, attrs.evolve(PLAN, permission="default")]),
        (EXEC, [DENY, ASK, EXEC], [ALLOW, PLAN, TIMED]),
        (TIMED, [DENY, ASK, TIMED], [ALLOW, PLAN, EXEC]),
        (None, [DENY], [ASK, ALLOW, PLAN, EXEC, TIMED]),
    ],
)
def test_the_order_of_permission(own: Spec | None, narrow: list[Spec], wide: list[Spec]) -> None:
    assert [spec for spec in narrow if is_wider(spec, own)] == []
    assert [spec for spec in wide if not is_wider(spec, own)] == []


def test_an_agent_that_spawns_makes_none_wider_than_itself_over_generations() -> None:
    """What it may make may in its turn make nothing that it could not have made itself."""
    specs = [DENY, ASK, ALLOW, PLAN, EXEC, TIMED, attrs.evolve(ASK, env=("K",)), attrs.evolve(ASK, args=("-x",))]
    for own, child, grandchild in itertools.product(specs, repeat=3):
        if not exceeds(child, own) and not exceeds(grandchild, child):
            assert not exceeds(grandchild, own), (own, child, grandchild)


@pytest.mark.parametrize(
    ("more", "own", "word"),
    [
        ({"permission": "allow"}, {}, "permission 'allow' of a claude agent is wider"),
        ({"prompt_wider": True}, {}, "prompt_wider must be"),
        ({"args": ("--dangerous",)}, {}, "args must be"),
        ({"env": ("KEY",)}, {"env": ("OTHER",)}, "env must be"),
        ({"env_file": "/x"}, {}, "env_file must be"),
        ({"prompt_wider": True}, {"prompt_wider": True}, ""),
        ({"args": ("--a",)}, {"args": ("--a",)}, ""),
        ({"args": ("--a",)}, {"permission": "allow"}, ""),
        ({"env": ("KEY",)}, {"env": ("OTHER", "KEY")}, ""),
        ({"env_file": "/x"}, {"env_file": "/x"}, ""),
        ({"spawn": True, "model": "m", "turn_timeout": 5.0}, {}, ""),
    ],
)
def test_what_an_agent_may_make(more: dict[str, object], own: dict[str, object], word: str) -> None:
    told = exceeds(attrs.evolve(ASK, **more), attrs.evolve(ASK, spawn=True, **own))  # type: ignore[arg-type]
    assert told.startswith(word) if word else told == ""


def test_who_is_unknown_makes_nothing() -> None:
    assert exceeds(DENY, None) != ""


def test_every_key_of_a_spec_is_judged_or_free() -> None:
    """A new key that could widen an agent cannot be forgotten here."""
    assert set(KEYS) | {"budget_usd", "launcher"} == set(CAPS) | FREE | {"permission"}
    assert not set(CAPS) & FREE


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("tasks/new/one", What.TASKS_NEW),
        ("tasks/new/.one/two", What.TASKS_NEW),
        ("tasks/new", What.ELSEWHERE),
        ("tasks/newer/one", What.ELSEWHERE),
        ("tasks/1/task", What.ELSEWHERE),
        ("tasks", What.ELSEWHERE),
        ("context/notes", What.CONTEXT),
        ("context/a/b", What.CONTEXT),
        ("context", What.ELSEWHERE),
        ("contexts/a", What.ELSEWHERE),
        ("workflows/context/a", What.ELSEWHERE),
        ("asks/1/answer", What.ELSEWHERE),
        ("hosts/h", What.ELSEWHERE),
    ],
)
def test_what_an_agent_may_write_of_homes_directories(path: str, what: What) -> None:
    assert what_of(tuple(path.split("/"))) is what


def test_a_refusal_names_the_place() -> None:
    sentence = may(Opener("a1", "b"), What.ELSEWHERE, place="workflows/review.toml")
    assert sentence == f"agent a1 may not write workflows/review.toml: {PERMITTED}"

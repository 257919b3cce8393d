"""The spec: which values each key takes, and what the error names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoefs.contract.backends import BACKENDS
from zoefs.contract.spec import (
    KEYS,
    LATER,
    Restart,
    Spec,
    SpecError,
    check_keys,
    effective,
    encode_spec,
    from_table,
    line_of,
    parse_spec,
)
from zoefs.contract.words import OnLost

QUICK = settings(deadline=None, max_examples=200)
EMPTY = Spec()

GOOD = [
    ("backend", '"claude"', "claude"),
    ("cwd", '"/tmp/x y"', "/tmp/x y"),
    ("cwd", '""', ""),
    ("model", '"opus"', "opus"),
    ("model", '""', ""),
    ("prompt", '"""\nBe brief.\n"""', "Be brief.\n"),
    ("prompt", '"caf\u00e9 \\u0001"', "caf\u00e9 \x01"),
    ("argv", '["sh", "-c", "cat"]', ("sh", "-c", "cat")),
    ("argv", '["x", ""]', ("x", "")),
    ("args", "[]", ()),
    ("args", '["--a", ""]', ("--a", "")),
    ("env", '["PATH", "_A", "a1"]', ("PATH", "_A", "a1")),
    ("env", "[]", ()),
    ("env_file", '"/run/secrets"', "/run/secrets"),
    ("permission", '"allow"', "allow"),
    ("ask_timeout", '"5m"', 300.0),
    ("ask_default", '"deny"', "deny"),
    ("ask_default", '"allow"', "allow"),
    ("fork", '"r1"', "r1"),
    ("turn_timeout", "0", 0.0),
    ("turn_timeout", "90", 90.0),
    ("turn_timeout", "0.5", 0.5),
    ("turn_timeout", '"90s"', 90.0),
    ("turn_timeout", '"20m"', 1200.0),
    ("turn_timeout", '"1.5 h"', 5400.0),
    ("restart", '"never"', Restart(when="never")),
    ("restart", '"on-crash"', Restart()),
    ("restart", "{}", Restart()),
    ("restart", '{floor = "2s", cap = 9, burst = 3, window = "1m", stable = 7}', Restart("on-crash", 2, 9, 3, 60, 7)),
    ("restart", "{floor = 60, cap = 60}", Restart(floor=60, cap=60)),
    ("on_lost", '"hold"', "hold"),
    ("on_lost", '"continue"', "continue"),
    ("spawn", "true", True),
    ("spawn", "false", False),
    ("prompt_wider", "true", True),
]
BAD = [
    *(("backend", value) for value in ('"hermes"', '"Claude"', '""', "1", "[]", "true", "{}", '["claude"]')),
    *(("cwd", value) for value in ('"x"', '"./x"', '"~/x"', '" /x"', "1", '["/x"]', '"/x\\u0000"', "1979-05-27")),
    *(("model", value) for value in ("1", "true", "[]", '"a\\u0000"')),
    *(("prompt", value) for value in ("1", '["a"]', "{a = 1}")),
    *(("argv", value) for value in ('"sh"', "[]", '[""]', "[1]", '["sh", 1]', '["sh", "\\u0000"]', '[["sh"]]')),
    *(("args", value) for value in ('"-v"', "[1]", "[true]", "{}")),
    *(("env", value) for value in ('"PATH"', '["A=b"]', '["1A"]', '[""]', '["A-B"]', '["A\\n"]', '["\u00c9"]', "[1]")),
    *(("env_file", value) for value in ('"secrets"', "1")),
    *(("permission", value) for value in ("1", "[]")),
    *(("ask_timeout", value) for value in ("-1", '"x"', "true")),
    *(("ask_default", value) for value in ('"ask"', '""', "true", "1")),
    *(("fork", value) for value in ('""', '"a/b"', '"list"', '".x"', "1", "true")),
    *(("turn_timeout", value) for value in ("-1", "true", "inf", "nan", "1e10", '"90"', '"s"', '"1d"', '"-1s"', "[]")),
    *(("turn_timeout", value) for value in ('"\u0663s"', '"1e3s"', '"1s "', '"' + "9" * 400 + 'h"', "9" * 400)),
    *(("restart", value) for value in ('"always"', "1", "true", "[]", "{x = 1}", '{when = "always"}', '{floor = "x"}')),
    *(("restart", value) for value in ("{burst = 0}", "{burst = 1001}", "{burst = 1.0}", "{burst = true}")),
    *(("restart", value) for value in ("{floor = 9, cap = 1}", "{floor = 61}", '{window = "1d"}', "{stable = -1}")),
    *((key, value) for key in ("spawn", "prompt_wider") for value in ('"true"', "1", "[]")),
    *(("on_lost", value) for value in ('"resend"', '""', "1", "true")),
]


def test_every_key_is_tested_and_is_a_field() -> None:
    assert {key for key, _, _ in GOOD} == {key for key, _ in BAD} == set(KEYS)
    assert all(hasattr(EMPTY, key) for key in KEYS)
    assert all(KEYS[key].name == key and KEYS[key].doc for key in KEYS)


@pytest.mark.parametrize(("key", "value", "expected"), GOOD)
def test_what_a_key_takes(key: str, value: str, expected: Any) -> None:
    assert parse_spec(f"{key} = {value}\n") == Spec(**{key: expected})


@pytest.mark.parametrize(("key", "value"), BAD)
def test_what_a_key_refuses(key: str, value: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"# a comment\n\n  {key} = {value}\n")
    error = caught.value
    assert (error.key, error.line, error.syntax) == (key, 3, False)
    assert key in error.sentence
    assert str(error) == error.sentence
    assert "\n" not in error.sentence


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_can_be_named(backend: str) -> None:
    argv = 'argv = ["true"]' if backend == "exec" else ""
    assert parse_spec(f'backend = "{backend}"\n{argv}\n').backend == backend


def test_nothing_is_a_spec() -> None:
    assert parse_spec("") == parse_spec("# only this\n") == EMPTY


@pytest.mark.parametrize("key", ["modell", "Model", "MODEL", "no such", "", "caf\u00e9", "x" * 300])
def test_an_unknown_key_is_named_with_its_line(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f'model = "x"\n"{key}" = 1\n')
    error = caught.value
    assert (error.key, error.line, error.syntax) == (key, 2, False)
    assert repr(key[:40]) in error.sentence
    assert all(known in error.sentence for known in KEYS)


@pytest.mark.parametrize("key", sorted(LATER))
def test_a_key_of_a_later_version_is_refused(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"args = []\n{key} = 1\n")
    assert (caught.value.key, caught.value.line, caught.value.syntax) == (key, 2, False)
    assert key in caught.value.sentence


def test_the_keys_are_those_of_the_page() -> None:
    page = (
        "backend cwd role model prompt argv args env env_file permission ask_timeout ask_default budget_usd max_turns "
        "turn_timeout silence_timeout memory_max cpu_max restart on_lost spawn launcher context worktree"
    )
    beyond = {"fork", "prompt_wider"}
    assert set(KEYS) | LATER == set(page.split()) | beyond
    assert not set(KEYS) & LATER


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model", 1),
        ("model =", 1),
        ('model = "x', 1),
        ('args = []\nmodel = x\nprompt = "y"\n', 2),
        ('model = "a"\nmodel = "b"\n', None),
        ("\n\n= 1\n", 3),
        ("[restart\n", 1),
        ('prompt = """\nnot ended', 2),
        ("a b = 1\n", 1),
        ("model = 1979-99-99\n", 1),
        ("\0", 1),
    ],
)
def test_text_that_is_no_toml_yet(text: str, line: int | None) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert caught.value.syntax
    assert line is None or caught.value.line == line
    assert caught.value.key == ""


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "args = " + "[" * 5000 + "]" * 5000, "a = " + "9" * 5000])
def test_text_made_to_break_the_parser_is_a_spec_error(text: str) -> None:
    with pytest.raises(SpecError):
        parse_spec(text)


@QUICK
@given(st.text(alphabet="[]{}\"'=.,#\n\\u0 9aeT:-restart\ud800", max_size=40) | st.text(max_size=40))
def test_any_text_is_a_spec_or_a_spec_error(text: str) -> None:
    errors: list[SpecError] = []
    try:
        parse_spec(text)
    except SpecError as caught:
        errors.append(caught)
    for error in errors:
        assert error.sentence
        assert error.key or error.syntax
        assert 0 <= error.line <= text.count("\n") + 1


def test_exec_needs_its_program() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec('backend = "exec"\n')
    assert caught.value.key == "argv"
    assert "argv" in caught.value.sentence


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_some_backends_can_continue_a_turn(backend: str) -> None:
    argv = 'argv = ["true"]' if backend == "exec" else ""
    text = f'backend = "{backend}"\n{argv}\non_lost = "continue"\n'
    if BACKENDS[backend].on_lost == OnLost.CONTINUE:
        assert parse_spec(text).on_lost == "continue"
        return
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert (caught.value.key, caught.value.line) == ("on_lost", 3)
    assert backend in caught.value.sentence
    assert "hold" in caught.value.sentence


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('restart.floor = 1\nrestart.cap = "x"\n', 2),
        ("[restart]\nfloor = 1\nburst = 0\n", 3),
        ("[restart]\nfloor = 1\nspeed = 0\n", 3),
    ],
)
def test_a_wrong_value_in_a_table_is_named_with_its_own_line(text: str, line: int) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    sub = text.split("\n")[line - 1].split("=")[0].split(".")[-1].strip()
    assert caught.value.key.split(".")[0] == "restart"
    assert sub in caught.value.sentence
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("", "cwd", 0),
        ("cwd = 1", "cwd", 1),
        ("# cwd = 1\n\ncwd=1\ncwd = 2", "cwd", 3),
        ("  \tcwd  = 1", "cwd", 1),
        ('"cwd" = 1', "cwd", 1),
        ("'cwd' = 1", "cwd", 1),
        ("env_file = 1\nenv = 2\n", "env", 2),
        ("my_env = 1\n", "env", 0),
        ("cwd_ = 1", "cwd", 0),
        ("restart.floor = 1", "restart", 1),
        ("restart . floor = 1", "restart", 1),
        ("model = 1\n[restart]\nfloor = 1", "restart", 2),
        ("[ restart ]", "restart", 1),
        ("[restart.x]", "restart", 1),
        ("[[restart]]\nfloor = 1\n", "restart", 1),
        ("[restart-x]\n[restart]\n", "restart", 2),
        ('"a b" = 1', "a b", 1),
        ('prompt = """\ncwd = "not this"\n"""\ncwd = "x"\n', "cwd", 4),
        ("prompt = '''\n[restart]\n'''\nrestart = 1\n", "restart", 4),
        ("[restart]\ncwd = 1\n", "cwd", 0),
    ],
)
def test_the_line_that_sets_a_key(text: str, key: str, line: int) -> None:
    assert line_of(text, key) == line


def test_empty_keys_are_taken_from_the_defaults() -> None:
    defaults = from_table(
        {"backend": "exec", "argv": ["cat"], "model": "m", "turn_timeout": 60, "restart": "never", "env": ["A"]}
    )
    spec = from_table({"model": "mine", "env": ["B"]}).or_default(defaults)
    assert spec == Spec(
        backend="exec", argv=("cat",), model="mine", turn_timeout=60.0, restart=Restart("never"), env=("B",)
    )
    assert Spec().or_default(defaults) == defaults
    assert defaults.or_default(Spec()) == defaults
    assert defaults.or_default(defaults) == defaults


@pytest.mark.parametrize(
    ("key", "mine", "default"),
    [
        ("restart", '"on-crash"', '"never"'),
        ("turn_timeout", "0", "60"),
        ("args", "[]", '["-v"]'),
        ("env", "[]", '["A"]'),
    ],
)
def test_a_key_that_the_spec_sets_is_not_taken_from_the_defaults(key: str, mine: str, default: str) -> None:
    """`turn_timeout = 0` is "never", not "whatever config.toml says"."""
    spec = parse_spec(f"{key} = {mine}\n")
    merged = spec.or_default(parse_spec(f"{key} = {default}\n"))
    assert getattr(merged, key) == getattr(spec, key)


def test_the_spec_that_holds_is_the_text_over_the_defaults_of_config() -> None:
    config = '[defaults]\nmodel = "m"\nturn_timeout = "1m"\n[other]\nx = 1\n'
    assert effective("", "") == Spec(backend="claude")
    assert effective("", config) == Spec(backend="claude", model="m", turn_timeout=60.0)
    assert effective('model = "mine"', config) == Spec(backend="claude", model="mine", turn_timeout=60.0)
    assert effective("", '[defaults]\nbackend = "exec"\nargv = ["cat"]') == Spec(backend="exec", argv=("cat",))


def test_what_one_text_lacks_the_defaults_may_give() -> None:
    """Only the spec that holds must be whole."""
    assert effective('backend = "exec"', '[defaults]\nargv = ["cat"]').argv == ("cat",)


@pytest.mark.parametrize(
    ("text", "config", "names"),
    [
        ("", "[defaults", ["config.toml"]),
        ("", "defaults = 1", ["config.toml", "defaults"]),
        ("", '[defaults]\nmodell = "x"', ["config.toml", "modell"]),
        ("", "[defaults]\nbudget_usd = 1", ["config.toml", "budget_usd"]),
        ("", '[defaults]\nbackend = "exec"', ["argv"]),
        ('on_lost = "continue"', '[defaults]\nbackend = "exec"\nargv = ["cat"]', ["on_lost", "exec"]),
        ("modell = 1", "", ["modell"]),
    ],
)
def test_a_wrong_default_is_a_spec_error(text: str, config: str, names: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        effective(text, config)
    assert all(name in caught.value.sentence for name in names)
    assert ("config.toml" in caught.value.sentence) == ("config.toml" in names)


NASTY = st.text(alphabet=st.sampled_from("\"'\\\n\r\t\b\f\x00\x01\x1b\x7f\x85\u00e9\u2028\ufeff\U0001f600#=[]{} ab"))
TEXTS = (NASTY | st.text(max_size=20)).map(lambda text: text.replace("\0", ""))
TIMES = st.floats(0, 1e9) | st.integers(0, 10**9)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "cwd": TEXTS.map(lambda text: "/" + text),
        "model": TEXTS,
        "prompt": TEXTS,
        "argv": st.lists(TEXTS, max_size=3).map(lambda words: ["program", *words]),
        "args": st.lists(TEXTS, max_size=3),
        "env": st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), max_size=3),
        "turn_timeout": TIMES,
        "restart": st.just("never")
        | st.fixed_dictionaries(
            {"when": st.sampled_from(["on-crash", "never"]), "floor": TIMES, "cap": st.just(1e9)},
            optional={"burst": st.integers(1, 1000), "window": TIMES, "stable": TIMES},
        ),
        "on_lost": st.sampled_from(["continue", "hold"]),
    },
)


@QUICK
@given(VALUES)
def test_what_is_encoded_is_read_back(values: dict[str, Any]) -> None:
    text = encode_spec(values)
    assert "\r" not in text
    assert "\0" not in text
    expected: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    match expected.get("restart"):
        case str():
            expected["restart"] = Restart(when="never")
        case dict() as table:
            expected["restart"] = Restart(**table)
        case _:
            pass
    assert parse_spec(text) == Spec(**expected)


@pytest.mark.parametrize("value", [None, {"a": 1}, object(), b"x", {1}])
def test_what_toml_cannot_say_is_a_bug(value: object) -> None:
    with pytest.raises(TypeError):
        encode_spec({"args": [value]})


@pytest.mark.parametrize(("backend", "key"), [(row.name, key) for row in BACKENDS.values() for key in row.without])
def test_a_key_that_means_nothing_to_its_backend_is_refused_at_once(backend: str, key: str) -> None:
    value = next(value for good, value, _ in GOOD if good == key)
    argv = 'argv = ["true"]\n' if backend == "exec" else ""
    for judge in (check_keys, parse_spec, lambda text: effective(text, "")):
        with pytest.raises(SpecError) as caught:
            judge(f'{argv}{key} = {value}\nbackend = "{backend}"\n')
        assert caught.value.key == key
        assert caught.value.line == (2 if argv else 1)
        assert f"an {backend}" in caught.value.sentence or f"a {backend}" in caught.value.sentence


def test_a_default_that_means_nothing_to_a_backend_is_no_fault_of_its_agents() -> None:
    config = '[defaults]\nmodel = "m"\nask_timeout = 5\n'
    assert effective('backend = "exec"\nargv = ["cat"]', config).backend == "exec"

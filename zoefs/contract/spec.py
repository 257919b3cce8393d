"""The spec of an agent: TOML in, one frozen value out. KEYS is the list of what may stand in it.

Rules. Everything is optional. An unknown key or an impossible value is a SpecError that names key and line; text
that is no TOML yet is a SpecError too, with `syntax` set, so that a half-written file can be told from a wrong one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from zoefs.contract.backends import BACKENDS
from zoefs.contract.words import OnLost


class SpecError(ValueError):
    """The text is no spec. `key` and `line` (from 1, 0 unknown) name the place; `syntax`: it is no TOML (yet)."""

    def __init__(self, sentence: str, key: str = "", line: int = 0, syntax: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.key = key
        self.line = line
        self.syntax = syntax


@attrs.frozen
class Restart:
    """When a dead CLI is started again. Times in seconds; `burst` deaths within `window` open the breaker."""

    when: str = "on-crash"
    floor: float = 1.0
    cap: float = 60.0
    burst: int = 5
    window: float = 120.0
    stable: float = 60.0


@attrs.frozen
class Spec:
    """What an agent is to be. Empty text means the default of that key."""

    backend: str = ""
    cwd: str = ""
    model: str = ""
    prompt: str = ""
    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    env_file: str = ""
    permission: str = ""
    turn_timeout: float = 0.0
    restart: Restart = Restart()
    on_lost: str = ""

    def or_default(self, defaults: Spec) -> Spec:
        """This spec with every empty key taken from `defaults`."""
        empty = {k: getattr(defaults, k) for k in KEYS if getattr(self, k) == getattr(_EMPTY, k)}
        return attrs.evolve(self, **empty)


_EMPTY = Spec()
DEFAULT_BACKEND = "claude"


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a text without NUL")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(x, str) and "\0" not in x for x in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _argv(value: Any) -> tuple[str, ...]:
    words = _texts(value)
    if not words or not words[0]:
        raise ValueError("a list of texts, the program first")
    return words


def _names(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    if not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names):
        raise ValueError("a list of names of environment variables (values never stand in a spec)")
    return names


def _path(value: Any) -> str:
    text = _text(value)
    if text and not text.startswith("/"):
        raise ValueError("an absolute path")
    return text


def _one_of(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of: {' '.join(words)}")
        return str(value)

    return check


def _seconds(value: Any) -> float:
    """A number of seconds, or text like `90s`, `20m`, `4h`."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", value)):
        value = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        raise ValueError("a time: seconds, or a text such as '90s', '20m', '4h'")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError("a whole number from 1 to 1000")
    return value


_RESTART_KEYS: dict[str, Callable[[Any], Any]] = {
    "when": _one_of("on-crash", "never"),
    "floor": _seconds,
    "cap": _seconds,
    "burst": _count,
    "window": _seconds,
    "stable": _seconds,
}


def _restart(value: Any) -> Restart:
    if isinstance(value, str):
        return Restart(when=_RESTART_KEYS["when"](value))
    if not isinstance(value, dict):
        raise ValueError("'on-crash', 'never', or a table of: " + " ".join(_RESTART_KEYS))
    unknown = set(value) - set(_RESTART_KEYS)
    if unknown:
        raise ValueError(f"a table of {' '.join(_RESTART_KEYS)} (not {sorted(unknown)[0]!r})")
    result = Restart(**{key: _RESTART_KEYS[key](x) for key, x in value.items()})
    if result.cap < result.floor:
        raise ValueError("a table whose cap is not below its floor")
    return result


@attrs.frozen
class Key:
    """One key of the spec. `check` turns a TOML value into ours or raises ValueError saying what it must be."""

    name: str
    check: Callable[[Any], Any]
    doc: str


KEYS: dict[str, Key] = {
    row.name: row
    for row in (
        Key("backend", _one_of(*BACKENDS), "the kind of CLI; default from config.toml, else claude"),
        Key("cwd", _path, "where the CLI works; default: a fresh work/ of its own"),
        Key("model", _text, "the model, in the CLI's own words"),
        Key("prompt", _text, "text appended to the CLI's system prompt"),
        Key("argv", _argv, "exec: the program and its arguments; {session} {turn} {name} are filled in"),
        Key("args", _texts, "more arguments for the CLI"),
        Key("env", _names, "names of environment variables passed on from the supervisor"),
        Key("env_file", _path, "a file of NAME=value lines added to the CLI's environment; read at each start"),
        Key("permission", _text, "ask, allow, deny, or the CLI's own name of a mode"),
        Key("turn_timeout", _seconds, "a turn longer than this is interrupted; 0 is never"),
        Key("restart", _restart, "'on-crash', 'never', or a table: when floor cap burst window stable"),
        Key("on_lost", _one_of(*OnLost), "a turn whose CLI died: continue it exactly once, or hold (it ends lost)"),
    )
}

LATER = frozenset(
    "role ask_timeout ask_default budget_usd max_turns silence_timeout memory_max cpu_max spawn launcher context "
    "worktree".split()
)
"""Keys of the contract that this version does not act on yet: refused, since a limit nobody keeps is a lie."""


def parse_spec(text: str) -> Spec:
    """The spec that TOML `text` stands for. Raises SpecError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line (\d+)", str(error))
        raise SpecError(f"no TOML: {error}", line=int(match[1]) if match else 0, syntax=True) from None
    spec = from_table(table, text)
    check_whole(spec, text)
    return spec


def check_whole(spec: Spec, text: str = "") -> None:
    """Refuse what no single key shows: keys that do not go together. Raises SpecError."""
    if spec.backend == "exec" and not spec.argv:
        raise SpecError("backend 'exec' needs argv: a list of texts, the program first", "argv")
    if spec.on_lost == OnLost.CONTINUE and spec.backend and BACKENDS[spec.backend].on_lost != OnLost.CONTINUE:
        raise SpecError(
            f"a {spec.backend} agent cannot continue a cut turn exactly once; on_lost can be: hold",
            "on_lost",
            line_of(text, "on_lost"),
        )


def effective(text: str, config: str) -> Spec:
    """The spec that holds for an agent: its own text over the `[defaults]` of config.toml. Raises SpecError."""
    own = parse_spec(text)
    try:
        defaults = tomllib.loads(config).get("defaults", {})
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"config.toml: no TOML: {error}") from None
    if not isinstance(defaults, dict):
        raise SpecError("config.toml: defaults must be a table of spec keys")
    try:
        spec = own.or_default(from_table(defaults)).or_default(Spec(backend=DEFAULT_BACKEND))
    except SpecError as error:
        raise SpecError(f"config.toml: {error.sentence}", error.key) from None
    check_whole(spec, text)
    return spec


def from_table(table: Mapping[str, Any], text: str = "") -> Spec:
    """A spec from a parsed table; `text` is searched for line numbers. Raises SpecError."""
    values = {}
    for key, value in table.items():
        line = line_of(text, key)
        if key in LATER:
            raise SpecError(f"{key}: this version does not act on it yet, so it may not be set", key, line)
        row = KEYS.get(key)
        if row is None:
            raise SpecError(f"unknown key {key[:40]!r}; the keys are {' '.join(KEYS)}", key, line)
        try:
            values[key] = row.check(value)
        except ValueError as error:
            raise SpecError(f"{key} must be {error}", key, line) from None
    return Spec(**values)


def line_of(text: str, key: str) -> int:
    """The number, from 1, of the first line of `text` that sets `key`; 0 where none does."""
    pattern = re.compile(rf"\s*(?:\[\s*{re.escape(key)}\b|[\"']?{re.escape(key)}[\"']?\s*[.=])")
    return next((n for n, line in enumerate(text.split("\n"), 1) if pattern.match(line)), 0)


def encode_value(value: object) -> str:
    """One TOML value: text, number, truth or list of these."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            escaped = "".join(_ESCAPES.get(c) or (c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in value)
            return f'"{escaped}"'
        case list() | tuple():
            return "[" + ", ".join(encode_value(x) for x in value) + "]"
        case _:
            raise TypeError(f"no TOML for {type(value).__name__}")


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def encode_spec(values: Mapping[str, object]) -> str:
    """TOML text of `values`, one key a line, tables as inline tables of dotted keys."""
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{key}.{sub} = {encode_value(x)}" for sub, x in value.items()]
        else:
            lines.append(f"{key} = {encode_value(value)}")
    return "".join(line + "\n" for line in lines)

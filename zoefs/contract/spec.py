"""The spec of an agent: TOML in, one frozen value out. KEYS is the list of what may stand in it.

Rules. Everything is optional. An unknown key or an impossible value is a SpecError that names key and line; text
that is no TOML yet is a SpecError too, with `syntax` set, so that a half-written file can be told from a wrong one.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from zoefs.contract.backends import BACKENDS
from zoefs.contract.words import AGENT_NAME_RULE, OnLost, is_agent_name


class SpecError(ValueError):
    """The text is no spec. `key` and `line` (from 1, 0 unknown) name the place; `syntax`: it is no TOML (yet)."""

    def __init__(self, sentence: str, key: str = "", line: int = 0, syntax: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.key = key
        self.line = line
        self.syntax = syntax

    @property
    def placed(self) -> str:
        """The sentence behind the line it is about."""
        return f"spec line {self.line}: {self.sentence}" if self.line else f"spec: {self.sentence}"


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
    ask_timeout: float = 0.0
    ask_default: str = "deny"
    fork: str = ""
    turn_timeout: float = 0.0
    restart: Restart = Restart()
    on_lost: str = ""
    spawn: bool = False
    prompt_wider: bool = False
    given: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    """The keys that were written down, whatever their value."""

    def or_default(self, defaults: Spec) -> Spec:
        """This spec with every key that was not written down taken from `defaults`."""
        taken = {key: getattr(defaults, key) for key in defaults.given - self.given}
        return attrs.evolve(self, **taken, given=self.given | defaults.given)


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


def _agent(value: Any) -> str:
    if not isinstance(value, str) or not is_agent_name(value):
        raise ValueError(f"the name of an agent: {AGENT_NAME_RULE}")
    return value


def _one_of(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of: {' '.join(words)}")
        return str(value)

    return check


def _seconds(value: Any) -> float:
    """A number of seconds, or text like `90s`, `20m`, `4h`."""
    if isinstance(value, str) and (match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh])", value)):
        value = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        raise ValueError("a time: seconds, or a text such as '90s', '20m', '4h'")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError("a whole number from 1 to 1000")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


_RESTART_KEYS: dict[str, Callable[[Any], Any]] = {
    "when": _one_of("on-crash", "never"),
    "floor": _seconds,
    "cap": _seconds,
    "burst": _count,
    "window": _seconds,
    "stable": _seconds,
}


class _WithinTable(ValueError):
    """A value is wrong because of one `key` of its table."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def _restart(value: Any) -> Restart:
    if isinstance(value, str):
        return Restart(when=_RESTART_KEYS["when"](value))
    if not isinstance(value, dict):
        raise ValueError("'on-crash', 'never', or a table of: " + " ".join(_RESTART_KEYS))
    checked = {}
    for key, x in value.items():
        if key not in _RESTART_KEYS:
            raise _WithinTable(key, f"a table of {' '.join(_RESTART_KEYS)} (not {key[:40]!r})")
        try:
            checked[key] = _RESTART_KEYS[key](x)
        except ValueError as error:
            raise _WithinTable(key, f"a table whose {key} is {error}") from None
    result = Restart(**checked)
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
        Key("ask_timeout", _seconds, "an ask open longer than this is answered with ask_default; 0 is never"),
        Key(
            "ask_default", _one_of("deny", "allow"), "deny, or allow: the answer to an ask that nobody answered in time"
        ),
        Key("fork", _agent, "the name of an agent: the first start goes on from a copy of its conversation"),
        Key("turn_timeout", _seconds, "a turn longer than this is interrupted; 0 is never"),
        Key("restart", _restart, "'on-crash', 'never', or a table: when floor cap burst window stable"),
        Key("on_lost", _one_of(*OnLost), "a turn whose CLI died: continue it (claude), or hold (it ends lost)"),
        Key("spawn", _truth, "true: from inside, it may make agents, none wider than itself"),
        Key("prompt_wider", _truth, "true: from inside, it may prompt agents of wider permission than its own"),
    )
}

LATER = frozenset("role budget_usd max_turns silence_timeout memory_max cpu_max launcher context worktree".split())
"""Keys of the contract that this version does not act on yet: refused, since a limit nobody keeps is a lie."""


def _parse(text: str, what: str) -> dict[str, Any]:
    """The table that TOML `text` stands for. Raises SpecError with `syntax` set."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line ([0-9]+)", str(error))
        line = int(match[1]) if match else text.rstrip("\n").count("\n") + 1
        raise SpecError(f"{what}no TOML: {error}", line=line, syntax=True) from None
    except (ValueError, RecursionError):
        raise SpecError(f"{what}no TOML: a value too large or too deep to be read", syntax=True) from None


def parse_spec(text: str) -> Spec:
    """The spec that TOML `text` alone stands for. Raises SpecError."""
    spec = from_table(_parse(text, ""), text)
    check_whole(spec, text)
    if spec.backend:
        check_backend(spec, spec, text)
    return spec


def check_keys(text: str) -> None:
    """Refuse text that no further line can make right: an unknown key, an impossible value, one that means nothing to
    its backend. Raises SpecError."""
    spec = from_table(_parse(text, ""), text)
    if spec.backend:
        check_backend(spec, spec, text)


@functools.lru_cache(maxsize=256)
def effective(text: str, config: str) -> Spec:
    """The spec that holds for an agent: its own text over the `[defaults]` of config.toml. Raises SpecError.

    Agents of the same text share one Spec: it is a value, and of a thousand agents few differ.
    """
    own = from_table(_parse(text, ""), text)
    defaults = _parse(config, "config.toml: ").get("defaults", {})
    if not isinstance(defaults, dict):
        raise SpecError("config.toml: defaults must be a table of spec keys")
    try:
        general = from_table(defaults)
    except SpecError as error:
        raise SpecError(f"config.toml: {error.sentence}", error.key) from None
    spec = own.or_default(general)
    spec = spec if spec.backend else attrs.evolve(spec, backend=DEFAULT_BACKEND)
    if "on_lost" not in own.given and BACKENDS[spec.backend].on_lost is not OnLost.CONTINUE:
        spec = attrs.evolve(spec, on_lost="")
    check_whole(spec, text)
    check_backend(spec, own, text)
    return spec


def check_backend(spec: Spec, own: Spec, text: str) -> None:
    """Refuse keys of `own` that mean nothing to the backend of `spec`. Raises SpecError."""
    row = BACKENDS[spec.backend]
    for key in sorted(row.without & own.given):
        raise SpecError(f"{key} means nothing to {row.agent}", key, line_of(text, key))
    if spec.on_lost == OnLost.CONTINUE and row.on_lost is not OnLost.CONTINUE:
        sentence = f"{row.agent} cannot continue a cut turn exactly once; on_lost can be: hold"
        raise SpecError(sentence, "on_lost", line_of(text, "on_lost"))


def check_whole(spec: Spec, text: str = "") -> None:
    """Refuse what no single key shows: keys that do not go together. Raises SpecError."""
    if spec.backend == "exec" and not spec.argv:
        raise SpecError("backend 'exec' needs argv: a list of texts, the program first", "argv")


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
        except _WithinTable as error:
            raise SpecError(f"{key} must be {error}", key, line_within(text, key, error.key) or line) from None
        except ValueError as error:
            raise SpecError(f"{key} must be {error}", key, line) from None
    return Spec(**values, given=frozenset(values))


_STRING = re.compile(r'"""|\'\'\'')


def line_of(text: str, key: str) -> int:
    """The number, from 1, of the first line of `text` that sets `key` at the top level; 0 where none does.

    Lines within multi-line strings, and keys of other tables, are no such lines.
    """
    name = rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')"
    sets, heads = re.compile(rf"\s*{name}\s*[.=]"), re.compile(rf"\s*\[\[?\s*{name}\s*[\].]")
    inside, table = "", False
    for number, line in enumerate(text.split("\n"), 1):
        if not inside:
            if heads.match(line) or (not table and sets.match(line)):
                return number
            table = table or re.match(r"\s*\[", line) is not None
        for mark in _STRING.findall(line):
            inside = "" if inside == mark else inside or mark
    return 0


def line_within(text: str, table: str, key: str) -> int:
    """The number, from 1, of the line that sets `key` of `table`: `table.key = …`, or below `[table]`; else 0."""
    begin = line_of(text, table)
    name = rf"(?:{re.escape(table)}\s*\.\s*)?{re.escape(key)}\s*="
    lines = text.split("\n")[begin - 1 :] if begin else []
    return next((begin + n for n, line in enumerate(lines) if re.match(rf"\s*{name}", line)), 0)


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

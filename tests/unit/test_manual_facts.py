"""What the manual says of the code beside its tables: lines of files, numbers, errors, variables."""

from __future__ import annotations

import ast
import errno
import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import supervisor
import zoefs
from supervisor.agent import HANDSHAKE_SECONDS
from supervisor.backends.claude import _PERMISSION as CLAUDE_WORDS
from supervisor.backends.codex import _PERMISSION as CODEX_WORDS
from supervisor.desk import INTERRUPT_ANSWER
from supervisor.endings import EOF_GRACE, TERM_GRACE
from supervisor.environment import ENV_FILE_MAX, PASSED
from supervisor.hearing import TEXT_MAX
from supervisor.hub import STARTS_AT_ONCE
from supervisor.steering import COMPACT_SECONDS
from supervisor.turns import KEPT_ORDERS
from tests.e2e.test_sshfs import RECIPE
from tests.manual import pages, sections
from zoefs.cli.manual import MADE, ROW
from zoefs.contract.home import HEARTBEAT_STALE, AgentHome, Home
from zoefs.contract.spec import LATER, Restart
from zoefs.contract.words import (
    CTL_MAX,
    PROMPT_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_MAX,
    RECEIPTS_SHOWN,
    SINGLE_WRITE_MAX,
    WAIT_SECONDS,
    AgentName,
    Reason,
)
from zoefs.disk.journal import Sizes
from zoefs.mount import readers
from zoefs.mount.writing import SPEC_MAX

PAGES = pages()
KERNEL = {"ENOSPC", "ENOTCONN", "ENAMETOOLONG", "EMFILE"}
"""Errors that we pass on, or that the kernel gives in our place."""


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for package in (zoefs, supervisor):
        for path in sorted(Path(package.__file__ or "").parent.rglob("*.py")):
            yield path, ast.parse(path.read_text())


SOURCES = dict(_sources())
TEXTS = {
    node.value
    for tree in SOURCES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
}
"""Every text that stands in the code."""


# -- what the files say -----------------------------------------------------------------------------------------------


def _rows(page: str, title: str) -> list[str]:
    (part,) = [part for part in re.split(r"^## ", PAGES[page], flags=re.M) if part.startswith(f"{title}\n")]
    return ROW.findall(MADE.sub("", part))


def _keys(function: object) -> set[str]:
    """The keys of the lines that a function of `readers` prints: first in a pair, as it stands there."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    pairs = (node for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) == 2)
    return {pair.elts[0].value for pair in pairs if isinstance(pair.elts[0], ast.Constant)}  # type: ignore[misc]


def test_every_line_of_stat_has_its_row() -> None:
    rows = _rows("zoefs-tree.5.md", "Lines of `stat`")
    assert set(rows) == _keys(readers.stat_text)
    assert len(rows) == len(set(rows))


def test_every_line_of_a_receipt_has_its_row() -> None:
    assert set(_rows("zoefs-prompts.7.md", "Lines of a receipt")) == _keys(readers.receipt_head)


def test_every_column_of_list_is_named() -> None:
    columns = readers.LIST_HEADER.decode().split()
    paragraph = " ".join(sections(PAGES["zoefs-tree.5.md"])["Files of MOUNT"]["list"].split())
    assert ", ".join(columns) in paragraph
    assert set(columns) - {"name", "cwd"} <= set(_rows("zoefs-tree.5.md", "Lines of `stat`"))


def _paths(there: AgentHome | Home) -> set[str]:
    """The files that a class of `contract/home` has a name for, from its directory."""
    named = [getattr(there, name) for name in dir(type(there)) if isinstance(getattr(type(there), name), property)]
    return {str(path.relative_to(there.path)) for path in named if isinstance(path, Path)}


def test_every_file_of_home_has_its_row() -> None:
    agent = _paths(AgentHome(AgentName("a"), Path("/h/agents/a"))) - {"orders"}
    assert set(_rows("zoefs-home.5.md", "Files of an agent")) == agent | {"raw", "err", "exit"}
    home = Home(Path("/h"))
    shown = {str(path.relative_to(home.path)) for path in home.shared}
    errs = {"log/supervisor.err", "log/zoefs.err"}
    assert set(_rows("zoefs-home.5.md", "Files of HOME")) == _paths(home) | shown | errs


_RESTART = {key: value for key, value in attrs.asdict(Restart()).items() if key != "when"}
NUMBERS = [
    ("zoefs-tree.5.md", "wait", f"nothing after {WAIT_SECONDS:g} s"),
    ("zoefs-tree.5.md", "health", f"older than {HEARTBEAT_STALE:g} s"),
    ("zoefs-tree.5.md", "ctl", f"at most {CTL_MAX >> 10} KiB"),
    ("zoefs-tree.5.md", "in", f"from 1 byte to {PROMPT_MAX >> 20} MiB"),
    ("zoefs-tree.5.md", "inbox", f"The newest {RECEIPTS_SHOWN:,} ended ones"),
    ("zoefs-tree.5.md", "events", f"beyond {Sizes().rotate >> 20} MiB"),
    ("zoefs-status.7.md", "running", f"{QUEUE_MAX:,} prompts or {QUEUE_BYTES_MAX >> 20} MiB"),
    ("zoefs-status.7.md", "starting", f"nothing for {HANDSHAKE_SECONDS:g} s"),
    ("zoefs-prompts.7.md", "", f"a single write below {SINGLE_WRITE_MAX:,} bytes"),
    ("zoefs-ctl.7.md", "stop", f"The grace is {EOF_GRACE:g} s after the end of its input"),
    ("zoefs-ctl.7.md", "stop", f"and {TERM_GRACE:g} s after SIGTERM"),
    ("zoefs-ctl.7.md", "interrupt", f"within {INTERRUPT_ANSWER:g} s"),
    ("zoefs-ctl.7.md", "compact", f"within {COMPACT_SECONDS / 60:g} minutes"),
    ("zoefs-events.5.md", "text", f"{TEXT_MAX:,} characters"),
    (
        "zoefs-errors.7.md",
        "EFBIG",
        f"{PROMPT_MAX >> 20} MiB (a prompt, a draft, `out`), above {SPEC_MAX >> 20} MiB (`spec`)",
    ),
    ("zoefs-recipes.7.md", "many-agents", f"lets {('one', 'two', 'three', 'four')[STARTS_AT_ONCE - 1]} of them start"),
    ("zoefs-home.5.md", "", f"newest {KEPT_ORDERS:,} stay"),
    ("zoefs-spec.5.md", "env_file", f"at most {ENV_FILE_MAX >> 10} KiB"),
    ("zoefs-spec.5.md", "env", ", ".join(PASSED)),
    ("zoefs-spec.5.md", "", ", ".join(f"`{key}`" for key in sorted(LATER))),
    *(("zoefs-spec.5.md", "restart", f"`{name} = {value:g}`") for name, value in _RESTART.items()),
    *(("zoefs-spec.5.md", "permission", f"`{word}`") for word in CLAUDE_WORDS.values()),
    *(("zoefs-spec.5.md", "permission", f"`{word}`") for word in CODEX_WORDS.values()),
]


@pytest.mark.parametrize(("page", "word", "said"), NUMBERS)
def test_numbers_and_words_are_those_of_the_code(page: str, word: str, said: str) -> None:
    words = [text for table in sections(PAGES[page]).values() for name, text in table.items() if name == word]
    assert any(said in " ".join(text.split()) for text in (words if word else [PAGES[page]]))


def test_every_option_of_sshfs_has_its_row() -> None:
    assert f"sshfs -o {RECIPE} HOST:MOUNT DIR" in PAGES["zoefs-sshfs.7.md"]
    assert set(_rows("zoefs-sshfs.7.md", "Options")) == set(RECIPE.split(","))


# -- errors -----------------------------------------------------------------------------------------------------------


def _raised() -> set[str]:
    """The names of errors in what is raised, and in what makes a refusal."""
    found = set()
    for tree in SOURCES.values():
        for node in ast.walk(tree):
            makes = isinstance(node, ast.Raise) or (
                isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("refused", "spoil")
            )
            number = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "number"
            if makes or number:
                inner = (x for x in ast.walk(node) if isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name))
                found |= {x.attr for x in inner if x.value.id == "errno" and x.attr.startswith("E")}  # type: ignore[attr-defined]
    return found


def test_every_error_that_is_raised_has_its_paragraph() -> None:
    names = set(sections(PAGES["zoefs-errors.7.md"])["Errors"])
    assert names <= set(errno.errorcode.values()) | {"EOPNOTSUPP"}
    assert {"EHOSTDOWN", "EBUSY", "EINVAL", "EAGAIN", "EDQUOT", "EFBIG", "EACCES", "ESTALE"} <= _raised()
    assert names == _raised() | KERNEL


def test_errors_are_told_as_a_shell_tells_them() -> None:
    for name, paragraph in sections(PAGES["zoefs-errors.7.md"])["Errors"].items():
        shown = re.match(r"\s*\(([^)]+)\)", paragraph)
        assert shown is not None
        assert shown[1] == os.strerror(getattr(errno, name)), name


# -- what the code reads and gives ------------------------------------------------------------------------------------


def test_every_variable_has_its_paragraph() -> None:
    read = {text for text in TEXTS if re.fullmatch(r"_?ZOEFS(_[A-Z]+)+|XDG_[A-Z_]+", text)}
    assert {"ZOEFS_HOME", "ZOEFS_AGENT"} <= read
    assert set(sections(PAGES["zoefs.1.md"])["Environment"]) == read


def test_a_reason_that_nothing_gives_says_so() -> None:
    given = {
        node.attr
        for path, tree in SOURCES.items()
        if "supervisor" in path.parts[-3:]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }
    assert "CONFIG" in given
    for word, paragraph in sections(PAGES["zoefs-status.7.md"])["Reasons"].items():
        assert ("Not given in this version" in paragraph) == (Reason(word).name not in given), word

"""The environment of a CLI: built from an allow-list, never inherited whole.

Secrets reach a CLI only because its spec names their variables or a file with them; they are written nowhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from zoefs.contract.home import Home
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import Spec

PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR")
"""Variables that every CLI gets where the supervisor has them. Everything else must be named in the spec."""
ENV_FILE_MAX = 1 << 17
_BINARIES = {"claude": ("ZOEFS_CLAUDE", "claude"), "codex": ("ZOEFS_CODEX", "codex")}

_NATIVE = {"codex": ("../codex-*/vendor/*/bin/codex", "node_modules/@openai/codex-*/vendor/*/bin/codex")}
"""Where a wrapper's native program is, from the package of the wrapper."""


def _read_regular(path: Path) -> str:
    """The text of an ordinary file of sensible size; anything else could wait, or never end. Raises OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > ENV_FILE_MAX:
            raise OSError(errno.EINVAL, f"no ordinary file of at most {ENV_FILE_MAX >> 10} KiB")
        return file.read(ENV_FILE_MAX).decode()


def read_env_file(path: Path) -> dict[str, str]:
    """The NAME=value lines of a file; quotes are stripped, other lines ignored, nothing is run by a shell.

    Raises Refusal(EACCES or ENOENT…) naming the file where it cannot be read.
    """
    try:
        text = _read_regular(path)
    except OSError as error:
        raise Refusal(error.errno or 0, f"env_file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refusal(errno.EINVAL, f"env_file {path}: it is no UTF-8 text") from None
    if "\0" in text:
        raise Refusal(errno.EINVAL, f"env_file {path}: it holds a NUL")
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip().isidentifier() and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[name.strip()] = value[1:-1] if quoted else value
    return found


def build(spec: Spec, ours: Mapping[str, str], home: Home, mount: str, name: str) -> dict[str, str]:
    """The CLI's environment. `ours` is the supervisor's. Raises Refusal where env_file cannot be read."""
    env = {key: ours[key] for key in (*PASSED, *spec.env) if key in ours}
    if spec.env_file:
        env |= read_env_file(Path(spec.env_file))
    env |= {"ZOEFS_AGENT": name, "ZOEFS_HOME": str(home.path)}
    if mount:
        env["ZOEFS_MOUNT"] = mount
    return env


def named(spec: Spec, ours: Mapping[str, str]) -> str:
    """The program that is looked for, and what names it, in words."""
    variable, default = _BINARIES.get(spec.backend, ("", ""))
    if spec.backend == "exec":
        return f"{spec.argv[0]!r} (argv of its spec)"
    return f"{ours[variable]!r} ({variable} of the supervisor)" if ours.get(variable) else repr(default)


def find_binary(spec: Spec, ours: Mapping[str, str], path: str, cwd: Path) -> str | None:
    """The absolute path of the program to run; None where there is none that can be run.

    Where npm put a wrapper script before a native program, it is the program: what kills the wrapper would leave it.
    """
    variable, default = _BINARIES.get(spec.backend, ("", ""))
    wanted = spec.argv[0] if spec.backend == "exec" and spec.argv else ours.get(variable) or default
    if "/" in wanted:
        wanted = str(cwd / wanted)
    found = shutil.which(wanted, path=path or "/usr/local/bin:/usr/bin:/bin")
    return _native(Path(found), _NATIVE.get(spec.backend, ())) if found else None


def _native(wrapper: Path, patterns: tuple[str, ...]) -> str:
    """The native program beside a wrapper script of npm; the path itself where there is none."""
    real = wrapper.resolve()
    programs = (program for pattern in patterns for program in sorted(real.parent.parent.glob(pattern)))
    return next((str(program.resolve()) for program in programs if os.access(program, os.X_OK)), str(wrapper))

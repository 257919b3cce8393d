"""Install the pinned agent CLIs outside the tree, and say where they are.

    python install_clis.py      the last line of stdout is the path of the claude binary

Rules:
- `$ZOEFS_CLAUDE`, a path or a command name, is taken as it is and wins over everything.
- Else the place is `$ZOEFS_CLI_CACHE/claude-VERSION`; without that variable `zoefs/clis` in the user's cache directory.
- A CLI counts as installed when a binary there answers `--version` with the pinned version; then nothing is done.
- The package's postinstall script puts the native binary in place of a stub, if npm lets it run. If not, the binary is
  taken from the package of this platform, which npm has put next to it.
- Tests call `find_claude`, which installs nothing; only running this program does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "@anthropic-ai/claude-code"
VERSION = "2.1.332"
NPM_DEADLINE_S = 1200.0
VERSION_DEADLINE_S = 60.0


class NotInstalled(Exception):
    """Why there is no CLI, in a sentence."""


def find_claude() -> Path | None:
    """The binary that `$ZOEFS_CLAUDE` names, or the one in the cache, or None. Raises NotInstalled."""
    named = os.environ.get("ZOEFS_CLAUDE")
    if not named:
        return _installed(_place())
    found = shutil.which(named)
    if found is None:
        raise NotInstalled(f"ZOEFS_CLAUDE names {named!r}, which is not an executable file or command.")
    return Path(found).absolute()


def install_claude() -> Path:
    """The binary, installed now if need be. Raises NotInstalled."""
    found = find_claude()
    if found is not None:
        return found
    place = _place()
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _installed(place)
        if found is None:
            _npm_install(place)
            found = _installed(place)
    if found is None:
        raise NotInstalled(
            f"npm installed {PACKAGE}@{VERSION} in {place}, but no binary there answers --version with {VERSION}; "
            "does npm leave out optional dependencies?"
        )
    return found


def _place() -> Path:
    cache = os.environ.get("ZOEFS_CLI_CACHE")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(cache) if cache else user_cache / "zoefs" / "clis").absolute() / f"claude-{VERSION}"


def _installed(place: Path) -> Path | None:
    return next((binary for binary in _binaries(place) if _version(binary) == VERSION), None)


def _binaries(place: Path) -> Iterator[Path]:
    packages = place / "node_modules" / Path(PACKAGE).parent
    yield packages / "claude-code" / "bin" / "claude.exe"
    yield from sorted(packages.glob("claude-code-linux-*/claude"))


def _version(binary: Path) -> str:
    """The first word of what `--version` prints; empty for a stub or no file at all."""
    try:
        ran = subprocess.run(
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERSION_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.partition(" ")[0].strip()


def _npm_install(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not on PATH; install node with npm, or name a claude binary in ZOEFS_CLAUDE.")
    command = [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", f"{PACKAGE}@{VERSION}"]
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, timeout=NPM_DEADLINE_S).returncode
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"npm did not install {PACKAGE}@{VERSION} within {NPM_DEADLINE_S:g} s.") from None
    if code != 0:
        raise NotInstalled(f"npm could not install {PACKAGE}@{VERSION} in {place} (exit {code}); its words are above.")


def main() -> None:
    try:
        print(install_claude())
    except NotInstalled as why:
        sys.exit(str(why))


if __name__ == "__main__":
    main()

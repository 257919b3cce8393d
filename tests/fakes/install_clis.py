"""Install the pinned agent CLIs outside the tree, and say where they are.

    python install_clis.py [claude|codex]...      stdout is the path of each binary named, one a line; of all if none is

Rules:
- `$ZOEFS_CLAUDE` and `$ZOEFS_CODEX`, a path or a command name, are taken as they are and win over everything.
- Else the place is `$ZOEFS_CLI_CACHE/NAME-VERSION`; without that variable `zoefs/clis` in the user's cache directory.
- A CLI counts as installed when a binary there answers `--version` with the pinned version; then nothing is done.
- Only native binaries are taken: npm puts the package of this platform next to the main one, and claude's postinstall
  script may have put it in place of a stub. A kill of codex's `bin/codex`, a node wrapper, leaves the real one running.
- Tests call `find_claude` and `find_codex`, which install nothing; only running this program does.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NPM_DEADLINE_S = 1200.0
VERSION_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Cli:
    """One CLI of npm. `binaries` are globs below `node_modules`, the best first."""

    name: str
    package: str
    version: str
    binaries: tuple[str, ...]

    @property
    def variable(self) -> str:
        return f"ZOEFS_{self.name.upper()}"


CLAUDE = Cli(
    "claude",
    "@anthropic-ai/claude-code",
    "2.1.332",
    ("@anthropic-ai/claude-code/bin/claude.exe", "@anthropic-ai/claude-code-linux-*/claude"),
)
CODEX = Cli("codex", "@openai/codex", "0.171.0", ("@openai/codex-linux-*/vendor/*/bin/codex",))
CLIS = {cli.name: cli for cli in (CLAUDE, CODEX)}


class NotInstalled(Exception):
    """Why there is no CLI, in a sentence."""


def find_claude() -> Path | None:
    """The claude binary, or None. Raises NotInstalled."""
    return find(CLAUDE)


def find_codex() -> Path | None:
    """The codex binary, or None. Raises NotInstalled."""
    return find(CODEX)


def find(cli: Cli) -> Path | None:
    """The binary that the CLI's variable names, or the one in the cache, or None. Raises NotInstalled."""
    named = os.environ.get(cli.variable)
    if not named:
        return _installed(cli, _place(cli))
    found = shutil.which(named)
    if found is None:
        raise NotInstalled(f"{cli.variable} names {named!r}, which is not an executable file or command.")
    return Path(found).absolute()


def install(cli: Cli) -> Path:
    """The binary, installed now if need be. Raises NotInstalled."""
    found = find(cli)
    if found is not None:
        return found
    place = _place(cli)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _installed(cli, place)
        if found is None:
            _npm_install(cli, place)
            found = _installed(cli, place)
    if found is None:
        raise NotInstalled(
            f"npm installed {cli.package}@{cli.version} in {place}, but no binary there answers --version with "
            f"{cli.version}; does npm leave out optional dependencies?"
        )
    return found


def _place(cli: Cli) -> Path:
    cache = os.environ.get("ZOEFS_CLI_CACHE")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(cache) if cache else user_cache / "zoefs" / "clis").absolute() / f"{cli.name}-{cli.version}"


def _installed(cli: Cli, place: Path) -> Path | None:
    found = (binary for glob in cli.binaries for binary in sorted((place / "node_modules").glob(glob)))
    return next((binary for binary in found if cli.version in _version(binary)), None)


def _version(binary: Path) -> list[str]:
    """The words that `--version` prints; none for a stub or no file at all."""
    try:
        ran = subprocess.run(
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERSION_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return ran.stdout.split()


def _npm_install(cli: Cli, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled(f"npm is not on PATH; install node with npm, or name a {cli.name} binary in {cli.variable}.")
    what = f"{cli.package}@{cli.version}"
    command = [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", what]
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, timeout=NPM_DEADLINE_S).returncode
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"npm did not install {what} within {NPM_DEADLINE_S:g} s.") from None
    if code != 0:
        raise NotInstalled(f"npm could not install {what} in {place} (exit {code}); its words are above.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the pinned agent CLIs and print where they are.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CLIS)}; all of them if none is given")
    given = parser.parse_args()
    unknown = set(given.names) - CLIS.keys()
    if unknown:
        parser.error(f"no CLI {', '.join(sorted(unknown))} is known")
    try:
        for name in given.names or CLIS:
            print(install(CLIS[name]))
    except NotInstalled as why:
        sys.exit(str(why))


if __name__ == "__main__":
    main()

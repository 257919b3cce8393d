"""HOME comes into being: its directories, its version, and a config.toml that explains itself.

Rules. Making it twice is making it once: several programs may do so at the same moment. What is there stays as it
is; a directory that holds other people's files is refused, since nothing of HOME belongs among them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from zoefs.contract.home import LAYOUT, Home
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import KEYS
from zoefs.disk.files import names, read_text, replace, sync_dir


def default_home(env: Mapping[str, str]) -> Path:
    """HOME where no option names it: $ZOEFS_HOME, else $XDG_STATE_HOME/zoefs, else ~/.local/state/zoefs."""
    if own := env.get("ZOEFS_HOME"):
        return Path(os.path.abspath(own))
    state = env.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "zoefs"


def ensure(home: Home) -> None:
    """Make what is missing of HOME, durably; directories 0700, files 0600.

    Raises Refusal where the directory is another layout's or is not ours to fill, OSError where the disk refuses.
    """
    version = read_text(home.version)
    if version not in ("", LAYOUT):
        sentence = f"{home.path} has layout {version[:20]!r}; this zoefs knows layout {LAYOUT}"
        raise Refusal(errno.EINVAL, f"{sentence}: use the zoefs that made it, or another HOME")
    if version and home.config.exists() and all(path.is_dir() for path in home.directories):
        return
    if not version and (strangers := _strangers(home)):
        sentence = f"{home.path} is no HOME and is not empty: it holds {strangers[0][:60]!r}"
        raise Refusal(errno.ENOTEMPTY, f"{sentence}; name an empty or a new directory")
    home.path.parent.mkdir(parents=True, exist_ok=True)
    for path in home.directories:
        path.mkdir(mode=0o700, exist_ok=True)
        sync_dir(path.parent)
    if not home.config.exists():
        replace(home.config, config_text().encode())
    if not version:
        replace(home.version, f"{LAYOUT}\n".encode())


def _strangers(home: Home) -> list[str]:
    """The names in HOME that none of our programs gives."""
    ours = {path.name for path in (*home.directories, home.config, home.version)}
    return [name for name in names(home.path) if name not in ours and not name.startswith(".") and ".lock" not in name]


def config_text() -> str:
    """The config.toml of a new HOME: every key of a spec, explained and left out."""
    rows = "".join(f"# {row.name}: {row.doc}\n" for row in KEYS.values())
    return f"""\
# Settings of this HOME; TOML. The table [defaults] stands behind every agent's spec: a key that a spec does not set
# is taken from here, and what neither sets is built in. The keys are those of a spec (zoefs-tree(5)):
#
{rows}
[defaults]
# backend = "claude"
# restart.burst = 5
"""

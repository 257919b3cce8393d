"""Whether a CLI has a record of a session: it decides between resuming and beginning under the same id."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from pathlib import Path


def _claude(env: Mapping[str, str], session: str) -> bool:
    """Claude Code writes `projects/<cwd>/<session>.jsonl` when it takes the first prompt."""
    config = env.get("CLAUDE_CONFIG_DIR") or str(Path(env.get("HOME", "/")) / ".claude")
    return bool(glob.glob(f"{glob.escape(config)}/projects/*/{glob.escape(session)}.jsonl"))


def _codex(env: Mapping[str, str], session: str) -> bool:
    """Codex finds a thread by its id alone, and says so where it does not."""
    return True


RECORDS: dict[str, Callable[[Mapping[str, str], str], bool]] = {"claude": _claude, "codex": _codex}


def has_record(backend: str, env: Mapping[str, str], session: str) -> bool:
    """Whether the CLI can resume `session`, as far as it shows from outside; False for a backend that keeps none."""
    look = RECORDS.get(backend)
    return look is not None and bool(session) and look(env, session)

"""The programs that look at a whole tree, each with what must come of it: exit status 0, nothing said, and a result.

A look is a script that runs in MOUNT; `$COPY` is a path of its own outside. What it must find is in Sight: every path,
and of the regular files lengths, times and digests, as one walk by system calls found them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import attrs

from tests.mount.crowd import COUNTS, NEEDLE
from tests.mount.indexer import index


@attrs.frozen
class Sight:
    """What is to be seen."""

    mount: Path
    paths: set[str]
    stats: dict[str, os.stat_result]
    files: dict[str, tuple[int, str]]

    @property
    def visible(self) -> set[str]:
        """What has no name with a dot, and lies below no such directory."""
        return {path for path in self.paths if not any(part.startswith(".") for part in path.split("/"))}

    def holding(self, text: str) -> set[str]:
        """The regular files that hold a text."""
        return {path for path in self.files if text.encode() in (self.mount / path).read_bytes()}


def sight(mount: Path) -> Sight:
    """Look by system calls."""
    files, wrong = index(mount)
    assert not wrong, wrong
    paths = {str(path.relative_to(mount)) for path in mount.rglob("*")}
    return Sight(mount, paths, {path: (mount / path).lstat() for path in paths}, files)


def lines(said: str) -> set[str]:
    """The lines, each there once."""
    found = said.splitlines()
    assert len(set(found)) == len(found)
    return {line.removeprefix("./") for line in found} - {"", "."}


def _counted(seen: Sight, said: str, copy: Path) -> None:
    assert int(said) == len(seen.visible)


def _counted_all(seen: Sight, said: str, copy: Path) -> None:
    """Every name, and `.` and `..` of the top and of each directory below it."""
    directories = 1 + sum(stat.S_ISDIR(is_.st_mode) for is_ in seen.stats.values())
    assert int(said) == len(seen.paths) + 2 * directories


def _paths(seen: Sight, said: str, copy: Path) -> None:
    assert lines(said) == seen.paths


def _sizes(seen: Sight, said: str, copy: Path) -> None:
    assert lines(said) == {f"{path} {is_.st_size}" for path, is_ in seen.stats.items()}


def _not_empty(seen: Sight, said: str, copy: Path) -> None:
    assert lines(said) == {path for path, (size, _) in seen.files.items() if size}


def _newer(seen: Sight, said: str, copy: Path) -> None:
    then = seen.stats["context/text"].st_mtime_ns
    newer = {path for path, is_ in seen.stats.items() if is_.st_mtime_ns > then}
    assert newer
    assert lines(said) == newer


def _needles(seen: Sight, said: str, copy: Path) -> None:
    assert lines(said) == seen.holding(NEEDLE) == {"context/text", "context/deep/link"}


def _needles_far(seen: Sight, said: str, copy: Path) -> None:
    """Symlinks are followed, also those to other trees."""
    assert lines(said) == {*seen.holding(NEEDLE), "hosts/far/needle"}


def _lengths(seen: Sight, said: str, copy: Path) -> None:
    found = [line.split(maxsplit=1) for line in said.splitlines()]
    told = {path.removeprefix("./"): int(size) for size, path in found if path != "total"}
    assert told == {path: size for path, (size, _) in seen.files.items()}


def _digests(seen: Sight, said: str, copy: Path) -> None:
    told = {path.removeprefix("./"): digest for digest, path in (line.split("  ", 1) for line in said.splitlines())}
    assert told.keys() == seen.files.keys()
    assert {path for path in told if told[path] != seen.files[path][1]} <= COUNTS.keys()


def _kinds(seen: Sight, said: str, copy: Path) -> None:
    told = dict(line.removeprefix("./").rsplit(": ", 1) for line in said.splitlines())
    assert told.keys() == seen.files.keys()
    assert not [kind for kind in told.values() if kind.startswith(("cannot", "ERROR"))]


def _is_copy(seen: Sight, said: str, copy: Path) -> None:
    """Every name, length and byte of what was copied, and nothing said."""
    found, wrong = index(copy)
    assert (said, wrong) == ("", [])
    assert {str(path.relative_to(copy)) for path in copy.rglob("*")} == seen.paths
    differ = {path for path in found.keys() | seen.files.keys() if found.get(path) != seen.files.get(path)}
    assert differ <= COUNTS.keys()
    assert all(found[path][0] == seen.files[path][0] for path in differ)


def _is_faithful(seen: Sight, said: str, copy: Path) -> None:
    """And every mode and time."""
    _is_copy(seen, said, copy)
    for path, is_ in seen.stats.items():
        found = (copy / path).lstat()
        assert (found.st_mode, found.st_mtime_ns) == (is_.st_mode, is_.st_mtime_ns), path


def _nothing(seen: Sight, said: str, copy: Path) -> None:
    assert said == ""


def _only_counts(said: str) -> bool:
    """Of two runs, the second may tell of what counts the looks, and of nothing else."""
    return {line.split(maxsplit=1)[1] for line in said.splitlines()} <= COUNTS.keys()


def _synchronized(seen: Sight, said: str, copy: Path) -> None:
    again, _, by_checksum = said.partition("--\n")
    assert again == ""
    assert _only_counts(by_checksum)
    _is_faithful(seen, "", copy)


def _archived(seen: Sight, said: str, copy: Path) -> None:
    _paths(seen, said, copy)
    _is_copy(seen, "", copy)


def _tracked(seen: Sight, said: str, copy: Path) -> None:
    links = {path for path, is_ in seen.stats.items() if stat.S_ISLNK(is_.st_mode)}
    tracked, _, changed = said.partition("--\n")
    assert lines(tracked) == seen.files.keys() | links
    assert _only_counts(changed)


_GIT = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_DIR=$COPY GIT_WORK_TREE=.; "

LOOKS: dict[str, tuple[str, Callable[[Sight, str, Path], None]]] = {
    "ls -lR": ("ls -lR | grep -c '^[-dlp]'", _counted),
    "ls -laR": ("ls -laR | grep -c '^[-dlp]'", _counted_all),
    "stat": ("find . -mindepth 1 -exec stat -c '%n %s' {} +", _sizes),
    "find": ("find . -print", _paths),
    "find -size": ("find . -type f -size +0", _not_empty),
    "find -newer": ("find . -mindepth 1 -newer context/text", _newer),
    "grep -r": (f"grep -rl '{NEEDLE}' .", _needles),
    "grep -R": (f"grep -RlD skip '{NEEDLE}' .", _needles_far),
    "cp -r": ("cp -r . $COPY", _is_copy),
    "cp -a": ("cp -a --sparse=always --reflink=auto . $COPY", _is_faithful),
    "tar": (
        "tar cf $COPY.tar . && tar df $COPY.tar --exclude=./metrics && tar tf $COPY.tar | sed 's:/$::' &&"
        "mkdir $COPY && tar xpf $COPY.tar -C $COPY",
        _archived,
    ),
    "du": ("du -al . | cut -f 2", _paths),
    "file": ("find . -type f -exec file -N {} +", _kinds),
    "wc": ("find . -type f -exec wc -c {} +", _lengths),
    "md5sum": ("find . -type f -exec md5sum {} +", _digests),
    "rsync": ("rsync -a . $COPY && rsync -ai . $COPY && echo -- && rsync -ai --checksum . $COPY", _synchronized),
    "git": (_GIT + "git init -q && git add -A && git ls-files && echo -- && git diff --name-status", _tracked),
    "git diff": ("cp -r agents $COPY && git diff --no-index --exit-code $COPY agents", _nothing),
    "globs": ("for f in * agents/* agents/*/* agents/*/inbox/.??*; do [ -e $f ] || exit 1; done", _nothing),
}
"""Their names, the scripts, and what is demanded of the output and the copy."""

"""What an indexer does to every file of a tree: each way of looking once, and what it found, as JSON.

Usage: python -m tests.mount.indexer TOP. `files` tells the length and the digest of each regular
file by its path; `wrong` what did not fit together or failed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mount.crowd import COUNTS


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def _all(fd: int) -> bytes:
    return b"".join(iter(lambda: os.read(fd, 1 << 17), b""))


def _mapped(fd: int, size: int, how: int) -> bytes | None:
    """The file through a mapping; None where this file cannot be mapped so, which is ENODEV."""
    try:
        with mmap.mmap(fd, size, flags=how, prot=mmap.PROT_READ) as found:
            return bytes(found)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return None


def _attributes(path: Path) -> None:
    """listxattr(2) and getxattr(2): there are none."""
    for ask in (lambda: os.listxattr(path), lambda: os.getxattr(path, "user.any")):
        try:
            found: object = ask()
        except OSError as error:
            found = None if error.errno in (errno.EOPNOTSUPP, errno.ENODATA) else error
        assert not found, f"extended attributes: {found}"


def look(path: Path, counts: bool) -> tuple[int, str]:
    """Every way of looking at a regular file; its length and digest. AssertionError, OSError: it does not fit."""
    size = path.lstat().st_size
    with _opened(path, os.O_RDONLY) as fd:
        assert os.fstat(fd).st_size == size, "fstat(2)"
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        assert poller.poll(0) or not size, "poll(2) of what was not read"
        assert os.lseek(fd, 0, os.SEEK_END) == size, "lseek(2)"
        os.lseek(fd, 0, os.SEEK_SET)
        data = _all(fd)
        assert len(data) == size, "read(2)"
        for how in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            found = _mapped(fd, size, how) if size else None
            assert found is None or counts or found == data, "mmap(2)"
    with _opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        again = _all(fd)
        assert len(again) == size, "read(2) after O_NONBLOCK"
        assert counts or again == data, "it reads otherwise after O_NONBLOCK"
    _attributes(path)
    os.statvfs(path)
    return size, hashlib.md5(data).hexdigest()


def index(top: Path) -> tuple[dict[str, tuple[int, str]], list[str]]:
    """All regular files below `top`, and what was wrong."""
    files: dict[str, tuple[int, str]] = {}
    wrong: list[str] = []
    for where, _, names in os.walk(top, onerror=lambda error: wrong.append(str(error))):
        for name in names:
            path = Path(where, name)
            key = str(path.relative_to(top))
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    files[key] = look(path, key in COUNTS)
            except (OSError, AssertionError) as error:
                wrong.append(f"{key}: {error}")
    return files, wrong


if __name__ == "__main__":
    files, wrong = index(Path(sys.argv[1]))
    print(json.dumps({"files": files, "wrong": wrong}))

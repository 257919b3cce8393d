"""Files replaced as a whole, and the fsyncs that make names and bytes last.

Source of the order: write temp, fsync it, rename, fsync the directory; anything less may lose the name or the bytes
in a power cut.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

_temps = itertools.count()


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte of `data`; os.write may take less on a disk that is nearly full."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def pwrite_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write every byte of `data` at `offset`."""
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def sync_file(path: Path, flags: int = 0) -> None:
    """Make the bytes of a file last."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_dir(path: Path) -> None:
    """Make the names in a directory last."""
    sync_file(path, os.O_DIRECTORY)


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` as a whole: whoever opens it reads the old bytes or the new. Lasts when this returns."""
    temp = path.with_name(f".{path.name}.{os.getpid()}.{next(_temps)}")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temp, path)
    except OSError:
        temp.unlink(missing_ok=True)
        raise
    sync_dir(path.parent)


def open_or_none(path: Path) -> int | None:
    """A descriptor for reading; None where there is no file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def read(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_text(path: Path) -> str:
    """The text of a small file without surrounding space; empty where there is none."""
    data = read(path)
    return "" if data is None else data.decode(errors="replace").strip()


def unsorted(path: Path) -> list[str]:
    """The names in a directory; none where there is no such directory."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def names(path: Path) -> list[str]:
    """The names in a directory, sorted; none where there is no such directory."""
    return sorted(unsorted(path))


def free(path: Path) -> int:
    """Bytes free on the disk of `path` for who writes there. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def modified(path: Path) -> int:
    """When a file was last written, in nanoseconds since 1970; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def size(path: Path) -> int:
    """The length of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0

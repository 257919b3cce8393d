"""The few steps on disk that the chains are made of, written as plainly as Python allows; and waiting for them."""

import os
import select
import time
from pathlib import Path

from inotify_simple import INotify, flags  # type: ignore[import-untyped, unused-ignore]

from tests.bench.workshop import PATIENCE, BenchError

__all__ = ["INotify", "append", "flags", "microseconds", "move", "put", "replace", "sync_directory", "wait"]


def microseconds(start_ns: int, end_ns: int) -> float:
    return (end_ns - start_ns) / 1e3


def put(path: Path, data: bytes) -> None:
    """A new file, fsynced."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move(source: Path, target: Path) -> None:
    """Rename, and the target's directory fsynced."""
    os.rename(source, target)
    sync_directory(target.parent)


def replace(path: Path, data: bytes) -> None:
    """Temp, fsync, rename, fsync of the directory."""
    temp = path.with_name(f".{path.name}")
    put(temp, data)
    move(temp, path)


def append(fd: int, data: bytes, *, sync: bool = False) -> None:
    os.write(fd, data)
    if sync:
        os.fsync(fd)


def wait(watch: INotify, lifeline: int | None = None) -> int:
    """Until the watch has something: the monotonic time (ns) at which we woke; its events are read and dropped.

    With a lifeline (a pipe whose end means "end yourself") there is no deadline, and SystemExit when it ends.
    """
    readable, _, _ = select.select(
        [watch, *([] if lifeline is None else [lifeline])], [], [], PATIENCE if lifeline is None else None
    )
    woken = time.monotonic_ns()
    if lifeline in readable:
        raise SystemExit(0)
    if not readable:
        raise BenchError(f"nothing happened within {PATIENCE:g} s")
    watch.read(timeout=0)
    return woken

"""Who a process is: pid and start time together, never a name; read from /proc (source: proc(5)).

A pid alone may have been given to another process; `Mark` says which one was meant, on which boot.
"""

from __future__ import annotations

import functools
import os
import resource
from pathlib import Path

import attrs

from zoefs.disk.files import read


@attrs.frozen
class Mark:
    """A process, for ever: its pid, its start time in clock ticks since boot, and the boot."""

    pid: int
    start: int
    boot: str = ""


@functools.cache
def boot_id() -> str:
    """A word that changes at each boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def raise_descriptor_limit() -> int:
    """Let this process open as many files as it may; how many it was to open before, -1 for any number.

    What it starts is to get that number back: a program that uses select(2) fails at a descriptor above 1,023.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (state, ppid, pgrp, session…); empty where there is none."""
    try:
        data = read(Path(f"/proc/{pid}/stat"))
    except OSError:
        return []
    return data.decode(errors="replace").rpartition(")")[2].split() if data else []


def start_time(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 where there is no such process, or only a zombie."""
    fields = stat_fields(pid)
    return ticks(fields) if fields and fields[0] not in "ZX" else 0


def ticks(fields: list[str]) -> int:
    """When the process started of which stat_fields are these, a zombie too, in clock ticks since boot; 0 of none."""
    return int(fields[19]) if len(fields) > 19 else 0


def mark_of(pid: int) -> Mark:
    """The mark of a process that runs now."""
    return Mark(pid, start_time(pid), boot_id())


@functools.cache
def _booted() -> int:
    return next(int(line[6:]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))


def began(mark: Mark) -> float:
    """When a process of this boot started, in seconds since 1970, to a second; always the same answer."""
    return _booted() + mark.start / os.sysconf("SC_CLK_TCK")


def lives(mark: Mark) -> bool:
    """Whether that very process runs. A mark of another boot is of no process of this one."""
    if mark.boot and mark.boot != boot_id():
        return False
    return mark.pid > 0 and mark.start > 0 and start_time(mark.pid) == mark.start


def environment(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty where it cannot be read."""
    try:
        data = read(Path(f"/proc/{pid}/environ")) or b""
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}

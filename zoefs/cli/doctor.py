"""`doctor`: what this machine, HOME, MOUNT and the CLIs are like, a line each, with what to do.

Rules. It looks and changes nothing. A check is a row of CHECKS; one that breaks is a line too, not the end. Whatever
may hang (a mount, a CLI) is asked under a deadline.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import attrs
import click

import zoefs
from zoefs.cli.daemons import DEAD, Part, is_mounted
from zoefs.cli.tree import within
from zoefs.cli.where import home_option, mount_option
from zoefs.contract.backends import BACKENDS, is_tested
from zoefs.contract.home import LAYOUT, Home
from zoefs.contract.spec import Spec
from zoefs.contract.words import Exit
from zoefs.disk.files import read_text
from zoefs.disk.mounts import mounts
from zoefs.disk.process import environment

PATIENCE = 4.0
"""Seconds that a mount has to answer."""
PATIENCE_CLI = 20.0
"""Seconds that a CLI has to tell its version: some are slow to start."""
PYFUSE3 = "3.5.0"
"""The release that the fast path was written for."""
PYTHON = (3, 11)
DISK_FEW, DISK_LEAST = 1 << 30, 64 << 20
DESCRIPTORS_FEW = 4096
WATCHES_FEW, INSTANCES_FEW = 4096, 16


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Finding:
    """One line: the name of the check, how it came out, and what was seen or is to be done."""

    check: str
    state: State
    text: str


Told = tuple[State, str]


@attrs.frozen
class Place:
    """What is examined."""

    home: Home
    mount: Path

    def part(self, name: str) -> Part:
        """The mount or the supervisor of this HOME."""
        return Part(name, self.home, self.mount)


def fuse(place: Place) -> Told:
    """Whether /dev/fuse can be opened."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return State.FAIL, "no /dev/fuse: load the module fuse, or start the container with --device /dev/fuse"
    except OSError as error:
        return State.FAIL, f"/dev/fuse: {error.strerror}; it must be readable and writable for you"
    return State.OK, "/dev/fuse can be opened"


def fusermount(place: Place) -> Told:
    """Whether there is what mounts for a user."""
    found = shutil.which("fusermount3")
    if found is None:
        return State.FAIL, "no fusermount3: install the package fuse3"
    if os.getuid() and not os.stat(found).st_mode & 0o4000:
        return State.FAIL, f"{found} is not setuid root, so that only root can mount; install the package fuse3 again"
    return State.OK, found


def home(place: Place) -> Told:
    """Whether HOME is ours, private, and of the layout we know."""
    path = place.home.path
    if not path.exists():
        return State.WARN, f"{path} is not there yet; zoefs up makes it"
    found = path.stat()
    if found.st_uid != os.getuid():
        return State.FAIL, f"{path} belongs to user {found.st_uid}, not to you"
    layout = read_text(place.home.version)
    if layout != LAYOUT:
        return State.FAIL, f"{path} has layout {layout[:20]!r}; this zoefs knows layout {LAYOUT}"
    if not os.access(path, os.W_OK):
        return State.FAIL, f"{path} cannot be written"
    if found.st_mode & 0o077:
        return State.WARN, f"{path} is open to others ({found.st_mode & 0o777:04o}); chmod 700 {path}"
    return State.OK, f"{path}, layout {layout}"


def mount_point(place: Place) -> Told:
    """Whether MOUNT is served, or could be."""
    path = place.mount
    if is_mounted(path):
        if (dead := is_dead(path)) is not None:
            return State.FAIL, f"{path}: {dead}; zoefs up clears a dead mount, else fusermount3 -uz {path}"
        return State.OK, f"{path} is mounted"
    if not path.exists():
        parent = next(one for one in path.parents if one.exists())
        if os.access(parent, os.W_OK):
            return State.OK, f"{path} is not mounted; zoefs up makes and mounts it"
        return State.FAIL, f"{path} cannot be made: {parent} is not writable"
    if not path.is_dir() or any(path.iterdir()):
        return State.FAIL, f"{path} is no empty directory; a mount would hide what is in it: name another by --mount"
    return State.OK, f"{path} is not mounted; zoefs up mounts it"


def is_dead(path: Path) -> str | None:
    """What is wrong with a mount; None where it answers."""
    try:
        within(PATIENCE, lambda: os.statvfs(path))
    except TimeoutError:
        return "the mount does not answer"
    except OSError as error:
        return "the daemon of the mount is dead" if error.errno in DEAD else error.strerror or str(error)
    return None


def stale(place: Place) -> Told:
    """Whether a killed daemon left a mount of zoefs anywhere."""
    points = [mount.path for mount in mounts() if mount.type == "fuse.zoefs"]
    dead = [str(point) for point in points if is_dead(point)]
    if dead:
        return State.FAIL, f"dead mounts: {' '.join(dead)}; take each away by fusermount3 -uz PATH"
    return State.OK, f"{len(points)} mounts of zoefs, none of them dead"


def mount_daemon(place: Place) -> Told:
    """Whether the mount daemon lives, answers, and is of this version."""
    part = place.part("mount")
    held = part.holder
    if not held.alive:
        return State.WARN, "it does not run; zoefs up starts it"
    served = held.words[0] if held.words else ""
    if served != str(place.mount):
        return State.WARN, f"HOME is mounted at {served or 'no place yet'}, not at {place.mount}"
    try:
        text = within(PATIENCE, (place.mount / "health").read_text)
    except (OSError, TimeoutError) as error:
        return State.FAIL, f"pid {held.mark.pid} does not answer ({type(error).__name__}); zoefs down, then zoefs up"
    return _of_this_version(held.mark.pid, held.words[1:2], text.splitlines()[0])


def supervisor(place: Place) -> Told:
    """Whether the supervisor lives, works, and is of this version."""
    held = place.part("supervisor").holder
    match held.health(time.time()):
        case "absent":
            return State.WARN, "it does not run; zoefs up starts it"
        case "degraded":
            return State.FAIL, f"pid {held.mark.pid} lives and its heartbeat is stale; see HOME/log/supervisor.err"
        case _:
            return _of_this_version(held.mark.pid, held.words[:1], f"pid {held.mark.pid} works")


def _of_this_version(pid: int, told: tuple[str, ...], text: str) -> Told:
    words = [word for word in told if word]
    if words != [zoefs.__version__]:
        what = f"version {words[0]}" if words else "a version that did not tell"
        return State.WARN, f"pid {pid} is of {what}, this is {zoefs.__version__}; zoefs down, then zoefs up"
    return State.OK, f"{text}, version {words[0]}"


def python(place: Place) -> Told:
    """Which Python runs us."""
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        return State.FAIL, f"{text}; zoefs needs {'.'.join(map(str, PYTHON))} or newer"
    return State.OK, f"{text}, {sys.executable}"


def packages(place: Place) -> Told:
    """Whether the libraries of both daemons are there."""
    from importlib.metadata import PackageNotFoundError, version

    found, missing = {}, []
    for name in ("pyfuse3", "trio", "attrs", "click", "inotify_simple"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return State.FAIL, f"not installed: {' '.join(missing)}; install zoefs again with its dependencies"
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    if found["pyfuse3"] != PYFUSE3:
        return State.WARN, f"{text}; with another pyfuse3 than {PYFUSE3} the mount is slower"
    return State.OK, text


def cgroup(place: Place) -> Told:
    """Whether agents could get cgroups of their own."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    root = Path("/sys/fs/cgroup")
    if own is None or not (root / "cgroup.controllers").exists():
        return State.WARN, "no cgroup v2 here; nothing in this version needs it"
    path = root / own.lstrip("/")
    if not (os.access(path, os.W_OK) and os.access(path / "cgroup.procs", os.W_OK)):
        return State.WARN, f"{path} is not writable; nothing in this version needs it"
    return State.OK, f"{path} is writable"


def cli_of(backend: str) -> Callable[[Place], Told]:
    """The check of one backend's CLI: the one that the supervisor would run."""

    def check(place: Place) -> Told:
        import subprocess

        from supervisor.environment import find_binary

        held = place.part("supervisor").holder
        env = (environment(held.mark.pid) if held.alive else {}) or dict(os.environ)
        path = find_binary(Spec(backend=backend), env, env.get("PATH", ""), Path("/"))
        if path is None:
            return State.WARN, f"not found; agents of backend {backend} need it in PATH, or ZOEFS_{backend.upper()}"
        try:
            done = subprocess.run(
                [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_CLI, check=False
            )
        except subprocess.TimeoutExpired:
            return State.FAIL, f"{path} --version does not end"
        except OSError as error:
            return State.FAIL, f"{path}: {error.strerror}"
        number = re.search(rb"[0-9]+\.[0-9]+\.[0-9]+", done.stdout)
        if done.returncode or number is None:
            return State.FAIL, f"{path} --version: exit {done.returncode}, and no version"
        word = number[0].decode()
        if not is_tested(backend, word):
            tested = " ".join(BACKENDS[backend].versions)
            return State.WARN, f"{path} {word}: not a version that the tests run with ({tested}); it may well work"
        return State.OK, f"{path} {word}, tested"

    return check


def disk(place: Place) -> Told:
    """Whether HOME's disk has room."""
    path = next(one for one in (place.home.path, *place.home.path.parents) if one.exists())
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    text = f"{free >> 20} MiB free at {path}"
    if free < DISK_LEAST:
        return State.FAIL, f"{text}; prompts will be refused: make room"
    if free < DISK_FEW or (found.f_files and found.f_favail < 10_000):
        return State.WARN, f"{text}, {found.f_favail} files; make room"
    return State.OK, text


def descriptors(place: Place) -> Told:
    """How many files the daemons may hold open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_FEW:
        return State.WARN, f"at most {hard} open files; raise the hard limit (ulimit -Hn) for many agents"
    return State.OK, f"at most {'any number of' if hard == resource.RLIM_INFINITY else hard} open files"


def inotify(place: Place) -> Told:
    """How much both daemons may watch."""
    root = Path("/proc/sys/fs/inotify")
    watches, instances = (int((root / name).read_text()) for name in ("max_user_watches", "max_user_instances"))
    text = f"{watches} watches, {instances} instances"
    if watches < WATCHES_FEW or instances < INSTANCES_FEW:
        return State.WARN, f"{text}; raise fs.inotify.max_user_watches and max_user_instances by sysctl"
    return State.OK, text


CHECKS: dict[str, Callable[[Place], Told]] = {
    "fuse": fuse,
    "fusermount3": fusermount,
    "home": home,
    "mount": mount_point,
    "stale mounts": stale,
    "mount daemon": mount_daemon,
    "supervisor": supervisor,
    "python": python,
    "packages": packages,
    "cgroup": cgroup,
    "claude": cli_of("claude"),
    "codex": cli_of("codex"),
    "disk": disk,
    "descriptors": descriptors,
    "inotify": inotify,
}


def examine(place: Place) -> Iterator[Finding]:
    """Every check, one after the other."""
    for name, check in CHECKS.items():
        try:
            state, text = check(place)
        except OSError as error:
            state, text = State.FAIL, f"{errno.errorcode.get(error.errno or 0, '?')}: {error.filename or error}"
        yield Finding(name, state, text)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a check, in a list.")
@home_option
@mount_option
def doctor(as_json: bool, home: Home, mount: Path) -> None:
    """Look at what zoefs needs, and say what to do about what is wrong."""
    findings = []
    for finding in examine(Place(home, mount)):
        findings.append(finding)
        if not as_json:
            click.echo(f"{finding.state:<5} {finding.check}: {finding.text}")
    if as_json:
        click.echo(json.dumps([attrs.asdict(finding) for finding in findings], indent=1))
    if any(finding.state is State.FAIL for finding in findings):
        sys.exit(Exit.FAILED)

"""`init`, `mount` and `up`: HOME made, one part in the foreground, or all parts started and ready."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import click

from zoefs.cli.daemons import Part, Started, exit_code
from zoefs.cli.down import bring_down
from zoefs.cli.fail import Failure
from zoefs.cli.tree import within
from zoefs.cli.where import home_option, mount_option
from zoefs.contract.home import Home
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import Exit
from zoefs.disk.layout import ensure
from zoefs.disk.process import lives

READY = 30.0
"""Seconds that the parts have to become ready."""
TAKE_BACK = 10.0
"""Seconds that parts have to end which were started beside one that could not be."""
LOOK = 0.01
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that end `up --foreground`. They are blocked from its start, so that none comes at a wrong moment."""
OPTIONAL = ("supervisor", "conductor", "bonfire")
"""Parts that `--without` may name. This version has no conductor and no bonfire: leaving them out changes nothing."""


def make_home(home: Home) -> None:
    """Make HOME. Raises Failure with the sentence of a refusal."""
    try:
        ensure(home)
    except Refusal as refusal:
        raise Failure(Exit.REFUSED, refusal.sentence) from None
    except OSError as error:
        raise Failure(Exit.FAILED, f"{error.filename or home.path}: {error.strerror}") from None


@click.command()
@home_option
def init(home: Home) -> None:
    """Make HOME, with a config.toml that explains itself."""
    make_home(home)
    click.echo(home.path)


@click.command()
@home_option
@mount_option
@click.option("--allow-other", is_flag=True, help="Let other users in, as far as the modes permit.")
def mount(home: Home, mount: Path, allow_other: bool) -> None:
    """Serve MOUNT in the foreground."""
    make_home(home)
    from zoefs.mount.daemon import run

    sys.exit(run(home.path, mount, allow_other))


def _serves(part: Part) -> str:
    """The mount point that the mount daemon of this HOME serves; empty where none runs."""
    held = part.holder
    return held.words[0] if held.alive and held.words else ""


def _check_elsewhere(part: Part) -> None:
    """Refuse a HOME whose tree is mounted elsewhere."""
    served = _serves(part)
    if served and served != str(part.mount):
        raise Failure(Exit.REFUSED, f"{part.home.path} is mounted at {served} already; run: zoefs down")


def _is_ready(part: Part, child: Started | None) -> bool:
    """Whether the part works. While a child of ours has neither the lock nor an end, it might still take the lock."""
    if child and part.holder.mark.pid != child.pid:
        return False
    if part.name == "supervisor":
        return part.holder.health(time.time()) == "ok"
    if _serves(part) != str(part.mount):
        return False
    try:
        return bool(within(READY, (part.mount / "health").read_bytes))
    except (OSError, TimeoutError):
        return False


def _become_ready(parts: list[Part], started: dict[str, Started]) -> None:
    """Wait until every part is ready. Raises Failure where one ends or takes too long."""
    end = time.monotonic() + READY
    waiting = list(parts)
    while waiting:
        for part in parts:
            child = started.get(part.name)
            code = exit_code(child.pid) if child else None
            if child and code is not None:
                del started[part.name]
                if code == Exit.REFUSED and part.holder.alive:
                    continue
                said = part.complaint(child.since).removeprefix("zoefs: ") or f"it said nothing; exit {code}"
                if code in (Exit.USAGE, Exit.REFUSED):
                    raise Failure(code, said)
                raise Failure(Exit.NOT_RUNNING, f"{part.name} ended: {said}")
        _check_elsewhere(parts[0])
        waiting = [part for part in waiting if not _is_ready(part, started.get(part.name))]
        if waiting and time.monotonic() > end:
            names = " and ".join(part.name for part in waiting)
            raise Failure(Exit.TIMED_OUT, f"{names}: not ready within {READY:g} s; see {parts[0].home.log}")
        if waiting:
            time.sleep(LOOK)


@click.command()
@home_option
@mount_option
@click.option("--without", metavar="PART,...", default="", help="Parts not to start: supervisor, conductor, bonfire.")
@click.option("--foreground", is_flag=True, help="Stay, and end all parts on Ctrl-C or SIGTERM.")
def up(home: Home, mount: Path, without: str, foreground: bool) -> None:
    """Start what is not running; return when it is ready."""
    left_out = {word for word in without.split(",") if word}
    if not left_out <= set(OPTIONAL):
        raise click.UsageError(f"--without takes {','.join(OPTIONAL)}, separated by commas")
    parts = [Part(name, home, mount) for name in ("mount", "supervisor") if name not in left_out]
    make_home(home)
    _check_elsewhere(parts[0])
    running = {part.name for part in parts if part.holder.alive}
    started: dict[str, Started] = {}
    if foreground:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        for part in parts:
            if part.name not in running:
                started[part.name] = part.start()
        _become_ready(parts, started)
    except OSError as error:
        _take_back(started)
        raise Failure(Exit.FAILED, f"{error.filename or home.path}: {error.strerror}") from None
    except BaseException:
        _take_back(started)
        raise
    for part in parts:
        where = f" at {mount}" if part.name == "mount" else ""
        click.echo(
            f"{part.name} {'ready' if part.name in started else 'runs already'}{where} (pid {part.holder.mark.pid})"
        )
    if foreground:
        _stay(parts)


def _take_back(started: dict[str, Started]) -> None:
    """End the children that we started, and see them gone; one that does not go in time is left to `down`."""
    left = [child.pid for child in started.values()]
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + TAKE_BACK
    while (left := [pid for pid in left if exit_code(pid) is None]) and time.monotonic() < end:
        time.sleep(LOOK)


def _stay(parts: list[Part]) -> None:
    """Wait for one of ENDING, or for the end of a part; then end all. Raises Failure where a part ended first."""
    marks = {part.name: part.holder.mark for part in parts}
    ended: list[str] = []
    while not ended and signal.sigtimedwait(ENDING, 0.5) is None:
        ended = [name for name, mark in marks.items() if not lives(mark)]
    bring_down(parts[0].home, parts[0].mount, leave_agents=False)
    while signal.sigtimedwait(ENDING, 0) is not None:
        pass  # said again meanwhile, and done already
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if ended:
        raise Failure(Exit.NOT_RUNNING, f"{' and '.join(ended)} ended; see {parts[0].home.log}")

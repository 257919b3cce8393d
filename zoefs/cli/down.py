"""`down`: both parts ended in good order, nothing left mounted. Doing it twice is doing it once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from zoefs.cli.daemons import DEAD, Part, detach, finish, is_mounted
from zoefs.cli.fail import Failure
from zoefs.cli.tree import within
from zoefs.cli.where import home_option, mount_option
from zoefs.contract.home import Home
from zoefs.contract.words import Exit
from zoefs.disk.lock import try_lock

DEADLINE = 30.0
"""Seconds that both parts have to end."""
RESERVED = 5.0
"""Of these, what is kept for the mount: the agents' last words still go through it, so it ends second."""


def bring_down(home: Home, mount: Path, leave_agents: bool) -> None:
    """End supervisor and mount, and say what was done. Raises Failure where something stays."""
    end = time.monotonic() + DEADLINE
    parts = [Part("supervisor", home, mount), Part("mount", home, mount)]
    if not leave_agents and not parts[0].holder.alive and _has_keepers(home):
        click.echo("CLIs run without a supervisor: one is started to end them")
        parts[0].start()
        while parts[0].holder.health(time.time()) != "ok" and time.monotonic() < end:
            time.sleep(0.01)
    late: list[str] = []
    ended: list[str] = []
    for part in parts:
        held = part.holder
        if not held.alive:
            continue
        number = signal.SIGUSR1 if part.name == "supervisor" and not leave_agents else signal.SIGTERM
        rest = max(0.0, end - time.monotonic()) - (RESERVED if part.name == "supervisor" else 0.0)
        if finish(held.mark, number, rest):
            ended.append(part.name)
            click.echo(f"{part.name} ended (pid {held.mark.pid}){_about_agents(part.name, leave_agents)}")
        else:
            late.append(f"{part.name} (pid {held.mark.pid})")
    if late:
        raise Failure(Exit.TIMED_OUT, f"not ended within {DEADLINE:g} s: {' and '.join(late)}")
    served = parts[1].holder.words
    point = Path(served[0]) if served else mount
    if is_mounted(point) and ("mount" in ended or _is_stale(point)):
        if not detach(point):
            raise Failure(Exit.FAILED, f"{point} cannot be unmounted; run: fusermount3 -uz {point}")
        click.echo(f"unmounted {point}, which nobody served")
    elif not ended:
        click.echo("nothing was running")


def _has_keepers(home: Home) -> bool:
    """Whether a keeper of an agent of this HOME lives: it holds the agent's lock."""
    for lock in home.agents.glob("[!.]*/lock"):
        fd = try_lock(lock)
        if fd is None:
            return True
        os.close(fd)
    return False


def _is_stale(point: Path) -> bool:
    """Whether the daemon behind a mount point is dead; it asks what no cache answers. A live one is not ours to end."""
    try:
        within(5.0, lambda: os.statvfs(point))
    except TimeoutError:
        return False
    except OSError as error:
        return error.errno in DEAD
    return False


def _about_agents(name: str, leave_agents: bool) -> str:
    if name != "supervisor":
        return ""
    return "; the agents go on" if leave_agents else "; so did the agents' CLIs, until the next start"


@click.command()
@home_option
@mount_option
@click.option("--leave-agents", is_flag=True, help="Let agents go on by themselves; the next supervisor adopts them.")
def down(home: Home, mount: Path, leave_agents: bool) -> None:
    """End what runs; leave nothing mounted."""
    bring_down(home, mount, leave_agents)

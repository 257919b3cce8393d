"""One mount daemon a HOME: start, serve, and go cleanly with waiters and open files.

Each resource pushes its own closing on one exit stack. The lock's text names the mount point once it is ours; who
waits for readiness then asks the mount itself.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import pyfuse3
import trio
from inotify_simple import INotify, flags

import zoefs
from zoefs.contract.home import Home
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import Exit
from zoefs.disk.journal import Sizes
from zoefs.disk.layout import ensure
from zoefs.disk.lock import Held, take, tell
from zoefs.disk.process import raise_descriptor_limit
from zoefs.mount import fastpath
from zoefs.mount.operations import Operations
from zoefs.mount.place import prepare
from zoefs.mount.service import Service

MIN_TASKS = 2
"""Idle tasks kept, so that a request taken does not have to start one. See fastpath."""
MAX_TASKS = 100_000
"""A handler that waits (bounded) holds a task; the library's default of 99 would freeze the mount for all."""

SWITCH_SECONDS = 0.0005
"""How long a thread that reads journals may keep a request waiting for the interpreter."""
SWEEP_SECONDS, BLIND_SECONDS = 5.0, 0.25
"""How often all journals are looked at; and how often where nothing tells of those that grow."""
UNWATCHED = "no inotify to be had (fs.inotify.max_user_instances or max_user_watches)"
RAISE = "close files, or raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)"

log = logging.getLogger("zoefs.mount")


def run(home_path: Path, mountpoint: Path, allow_other: bool = False) -> int:
    """Serve HOME at `mountpoint` until SIGTERM or SIGINT; returns an exit code of words.Exit."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s mount: %(message)s", stream=sys.stderr)
    home = Home(home_path.resolve())
    mountpoint = Path(os.path.abspath(mountpoint))
    if mountpoint == home.path or home.path in mountpoint.parents or mountpoint in home.path.parents:
        print(f"zoefs: the mount {mountpoint} and HOME {home.path} must not contain each other", file=sys.stderr)
        return Exit.USAGE
    if not os.path.exists("/dev/fuse"):
        print("zoefs: no /dev/fuse: this machine cannot mount a FUSE file system", file=sys.stderr)
        return Exit.FAILED
    with contextlib.ExitStack() as stack:
        try:
            ensure(home)
            lock = take(home.mount_lock)
        except Refusal as refusal:
            print(f"zoefs: {refusal.sentence}", file=sys.stderr)
            return Exit.REFUSED
        except Held as held:
            print(f"zoefs: {home.path} is already mounted by pid {held.mark.pid}", file=sys.stderr)
            return Exit.REFUSED
        stack.callback(os.close, lock)
        try:
            prepare(mountpoint)
        except Refusal as refusal:
            print(f"zoefs: {refusal.sentence}", file=sys.stderr)
            return Exit.REFUSED
        except OSError as error:
            print(f"zoefs: {mountpoint}: {error.strerror}", file=sys.stderr)
            return Exit.FAILED
        raise_descriptor_limit()
        sys.setswitchinterval(SWITCH_SECONDS)
        service = Service(home, Sizes.of(os.environ))
        journals = _watched(home)
        if journals is not None:
            stack.callback(journals.close)
        service.agents.load()
        options = {*pyfuse3.default_options, "auto_unmount", "fsname=zoefs", "subtype=zoefs"}
        if allow_other:
            options.add("allow_other")
        if not fastpath.install(version("pyfuse3")):
            log.info("pyfuse3 is not the pinned release: serving without the fast path")
        try:
            pyfuse3.init(Operations(service), str(mountpoint), options)
        except RuntimeError as error:
            print(f"zoefs: {mountpoint} could not be mounted: {error}", file=sys.stderr)
            return Exit.FAILED
        stack.callback(pyfuse3.close)
        tell(lock, str(mountpoint), zoefs.__version__)
        trio.run(_serve, service, journals)
    return Exit.DONE


def _watched(home: Home) -> INotify | None:
    """What tells of journals that grow; None where the machine has no more of these to give."""
    try:
        journals = INotify(nonblocking=True)
        try:
            journals.add_watch(str(home.agent_logs), flags.MODIFY | flags.CREATE | flags.MOVED_TO)
        except OSError:
            journals.close()
            raise
    except OSError as error:
        log.warning("%s: %s; journals are looked at every %g s instead", UNWATCHED, error.strerror, BLIND_SECONDS)
        return None
    return journals


async def _serve(service: Service, journals: INotify | None) -> None:
    async with trio.open_nursery() as nursery:
        if journals is not None:
            nursery.start_soon(_follow, service, journals)
        nursery.start_soon(_sweep, service, BLIND_SECONDS if journals is None else SWEEP_SECONDS)
        nursery.start_soon(service.agents.read_rest)
        nursery.start_soon(_go_when_told, service)
        await pyfuse3.main(MIN_TASKS, MAX_TASKS)
        nursery.cancel_scope.cancel()


async def _go_when_told(service: Service) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            service.close()
            await trio.lowlevel.checkpoint()
            pyfuse3.terminate()
            return


async def _follow(service: Service, journals: INotify) -> None:
    """Catch up with each journal that grows; after an overflow, with all."""
    while True:
        await trio.lowlevel.wait_readable(journals.fileno())
        events = journals.read(timeout=0)
        if any(event.mask & flags.Q_OVERFLOW for event in events):
            await service.agents.look_at_all()
        for name in {event.name.removesuffix(".jsonl") for event in events}:
            service.agents.catch_up(name)


async def _sweep(service: Service, seconds: float) -> None:
    """Now and then look whether a journal grew unheard; and say it where requests had no descriptor to be had."""
    refused = 0
    while True:
        await trio.sleep(seconds)
        await service.agents.look_at_all()
        before, refused = refused, service.metrics.refusals[errno.EMFILE] + service.metrics.refusals[errno.ENFILE]
        if refused > before:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning("no descriptor was left for %d requests (the limit is %d): %s", refused - before, limit, RAISE)

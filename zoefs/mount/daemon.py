"""One mount daemon a HOME: start, serve, and go cleanly with waiters and open files.

Each resource pushes its own closing on one exit stack. The lock's text names the mount point once it is ours; who
waits for readiness then asks the mount itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
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
        service = Service(home, Sizes.of(os.environ))
        journals = INotify(nonblocking=True)
        stack.callback(journals.close)
        journals.add_watch(str(home.agent_logs), flags.MODIFY | flags.CREATE | flags.MOVED_TO)
        service.load()
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


async def _serve(service: Service, journals: INotify) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow, service, journals)
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
    """Catch up with each journal that grows; after an overflow, and now and then, with all."""
    while True:
        with trio.move_on_after(5.0) as slow:
            await trio.lowlevel.wait_readable(journals.fileno())
        if slow.cancelled_caught:
            names = set(service.views)
        else:
            events = journals.read(timeout=0)
            full = any(event.mask & flags.Q_OVERFLOW for event in events)
            names = set(service.views) if full else {event.name.removesuffix(".jsonl") for event in events}
        for name in names:
            try:
                service.catch_up(name)
            except OSError as error:
                log.warning("%s: its journal could not be read, looking again soon: %s", name, error)

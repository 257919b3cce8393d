"""Where HOME and MOUNT are: the two options that commands share, and their defaults.

A mount point is never looked into to find its name: a daemon that hangs must not hang whoever asks for another.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from zoefs.contract.home import Home
from zoefs.disk.layout import default_home


def _home(_context: click.Context, _option: click.Parameter, value: str | None) -> Home:
    path = Path(os.path.expanduser(value)) if value else default_home(os.environ)
    return Home(path.resolve())


def _mount(_context: click.Context, _option: click.Parameter, value: str | None) -> Path:
    return mount_of(value)


def mount_of(value: str | None) -> Path:
    """MOUNT by this name, or the default one."""
    value = value or os.environ.get("ZOEFS_MOUNT")
    path = os.path.abspath(os.path.expanduser(value or "~/zoefs"))
    return Path(os.path.realpath(os.path.dirname(path))) / os.path.basename(path)


home_option = click.option(
    "--home",
    metavar="H",
    envvar="ZOEFS_HOME",
    callback=_home,
    help="HOME, where the facts are; default $ZOEFS_HOME, else $XDG_STATE_HOME/zoefs, else ~/.local/state/zoefs.",
)
mount_option = click.option(
    "--mount",
    metavar="M",
    envvar="ZOEFS_MOUNT",
    callback=_mount,
    help="MOUNT, where the tree is served; default $ZOEFS_MOUNT, else ~/zoefs.",
)

"""What stat(2), setattr and statvfs(2) ask and are told, between our values and pyfuse3's."""

from __future__ import annotations

import os
import stat

import pyfuse3
from pyfuse3 import EntryAttributes, InodeT

from zoefs.mount.inodes import Attributes
from zoefs.mount.nodes import Found
from zoefs.mount.passwork import Change

WAY_SECONDS = 0.05
"""How long the attributes of a directory of HOME are believed: as long as the way to a file in it takes."""


def entry(told: Attributes | Found) -> EntryAttributes:
    """The reply that says this."""
    return _shown_through(told) if isinstance(told, Found) else _served(told)


def _served(told: Attributes) -> EntryAttributes:
    reply = EntryAttributes()
    reply.st_ino = InodeT(told.inode)
    reply.st_mode = told.mode
    reply.st_size = told.size
    reply.st_nlink = told.links
    reply.st_uid, reply.st_gid = os.getuid(), os.getgid()
    reply.st_atime_ns = reply.st_mtime_ns = reply.st_ctime_ns = told.mtime
    reply.st_blocks = (told.size + 511) >> 9
    reply.attr_timeout, reply.entry_timeout = told.attr_seconds, told.entry_seconds
    return reply


def _shown_through(found: Found) -> EntryAttributes:
    """A file of HOME: as it is there, and to be asked for again each time, since HOME may change at any time.

    A name is looked up anew at every use, and with it come its attributes; only those of a directory on the way to a
    file are believed, which spares half of the requests.
    """
    reply, is_ = EntryAttributes(), found.stat
    reply.st_ino = InodeT(found.number)
    reply.st_mode, reply.st_nlink, reply.st_rdev = is_.st_mode, is_.st_nlink, is_.st_rdev
    reply.st_uid, reply.st_gid = is_.st_uid, is_.st_gid
    reply.st_size, reply.st_blocks, reply.st_blksize = is_.st_size, is_.st_blocks, is_.st_blksize
    reply.st_atime_ns, reply.st_mtime_ns, reply.st_ctime_ns = is_.st_atime_ns, is_.st_mtime_ns, is_.st_ctime_ns
    on_the_way = stat.S_ISDIR(is_.st_mode) and not found.entry_seconds
    reply.attr_timeout, reply.entry_timeout = WAY_SECONDS if on_the_way else 0.0, found.entry_seconds
    return reply


def change(attr: EntryAttributes, fields: pyfuse3.SetattrFields) -> Change:
    """What a SETATTR request asks for."""
    return Change(
        attr.st_size if fields.update_size else None,
        attr.st_mode if fields.update_mode else None,
        attr.st_uid if fields.update_uid else None,
        attr.st_gid if fields.update_gid else None,
        attr.st_atime_ns if fields.update_atime else None,
        attr.st_mtime_ns if fields.update_mtime else None,
    )


def disk(path: str | os.PathLike[str]) -> pyfuse3.StatvfsData:
    """What statvfs(2) says of the disk that `path` is on."""
    found = os.statvfs(path)
    told = pyfuse3.StatvfsData()
    for name in ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail", "namemax"):
        setattr(told, f"f_{name}", getattr(found, f"f_{name}"))
    return told

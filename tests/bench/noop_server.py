"""The do-nothing pyfuse3 server: the tree of c_server.c, its options and its arithmetic, no state.

What it costs is what pyfuse3 costs; what ours costs beyond it is ours.
Call: noop_server MOUNTPOINT [key=value]...   the keys are TreeOptions'; prints "ready" once mounted; SIGTERM ends it.
"""

import errno
import os
import signal
import stat
import sys
from collections.abc import Sequence

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FileNameT, FUSEError, InodeT, RequestContext

from tests.bench.workshop import TreeOptions

NAMES = (b"f0", b"f1", b"f2", b"f3", b"big")
SMALL, BIG = b"x" * 200, b"x" * 65536
ROOT, TOP, STEP = 1, 2, 16  # inode of directory i is (i + 1) * STEP, of its file j that plus j + 1


class Noop(pyfuse3.Operations):
    supports_dot_lookup = False

    def __init__(self, options: TreeOptions) -> None:
        super().__init__()
        self.options = options
        self.holder = TOP if options.depth > 1 else ROOT
        self.owner = os.getuid(), os.getgid()

    def attributes(self, inode: int) -> EntryAttributes:
        entry, options = EntryAttributes(), self.options
        entry.st_ino = InodeT(inode)
        entry.st_uid, entry.st_gid = self.owner
        if inode in (ROOT, TOP) or inode % STEP == 0:
            entry.st_mode = stat.S_IFDIR | 0o755
            entry.st_nlink = 2
            entry.attr_timeout = options.dir_attr
            entry.entry_timeout = options.top_entry if inode == TOP else options.dir_entry
        else:
            entry.st_mode = stat.S_IFREG | 0o644
            entry.st_size = len(self.content(inode))
            entry.attr_timeout = options.file_attr
            entry.entry_timeout = options.file_entry
        return entry

    def content(self, inode: int) -> bytes:
        return BIG if inode % STEP == len(NAMES) else SMALL

    def child(self, parent: int, name: bytes) -> int:
        """The child's inode, or 0."""
        if parent == self.holder:
            known = name[:1] == b"a" and name[1:].isdigit() and int(name[1:]) < self.options.dirs
            return (int(name[1:]) + 1) * STEP if known else 0
        if parent == ROOT:
            return TOP if name == b"agents" else 0
        return parent + NAMES.index(name) + 1 if name in NAMES else 0

    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        inode = self.child(parent_inode, name)
        if not inode:
            raise FUSEError(errno.ENOENT)
        return self.attributes(inode)

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        return self.attributes(inode)

    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        return self.attributes(inode)

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        return FileInfo(fh=FileHandleT(inode), direct_io=True, keep_cache=False)

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        return self.content(fh)[off : off + size]

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        return len(buf)

    async def flush(self, fh: FileHandleT) -> None:
        return None

    async def release(self, fh: FileHandleT) -> None:
        return None

    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        return FileHandleT(inode)

    async def readdir(self, fh: FileHandleT, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        count = self.options.dirs if fh == self.holder else 1 if fh == ROOT else len(NAMES)
        for at in range(start_id, count):
            name = b"a%d" % at if fh == self.holder else b"agents" if fh == ROOT else NAMES[at]
            entry = self.attributes(self.child(fh, name))
            if not pyfuse3.readdir_reply(token, FileNameT(name), entry, at + 1):
                return

    async def releasedir(self, fh: FileHandleT) -> None:
        return None

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        return None


async def serve() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pyfuse3.main, 1, 100_000)
            print("ready", flush=True)
            async for _ in signals:
                pyfuse3.terminate()
                nursery.cancel_scope.cancel()
                return


def main(argv: list[str]) -> None:
    mountpoint, options = argv[0], TreeOptions.parse(argv[1:])
    fuse_options = {"fsname=bench-noop"} | ({"default_permissions"} if options.default_permissions else set())
    pyfuse3.init(Noop(options), mountpoint, fuse_options)
    try:
        trio.run(serve)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main(sys.argv[1:])

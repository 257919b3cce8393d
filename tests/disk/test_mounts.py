"""The kernel's list of mounts, read in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoefs.disk.mounts import Mount, decode, mounts


@pytest.mark.parametrize(
    ("line", "mount"),
    [
        (b"36 35 98:0 / / rw,noatime - ext4 /dev/root rw", Mount(Path("/"), "ext4")),
        (b"40 36 0:52 / /m rw shared:7 master:1 - fuse.zoefs zoefs rw,user_id=0", Mount(Path("/m"), "fuse.zoefs")),
        (rb"41 36 0:53 / /a\040b\011c\012d\134040 rw - tmpfs none rw", Mount(Path("/a b\tc\nd\\040"), "tmpfs")),
    ],
)
def test_a_line_tells_place_and_kind(line: bytes, mount: Mount) -> None:
    assert decode(line) == mount


def test_the_root_is_mounted_and_proc_is_what_it_says() -> None:
    found = {mount.path: mount.type for mount in mounts()}
    assert found[Path("/")]
    assert found[Path("/proc")] == "proc"

"""Names below a directory: what is found is what has the name, and nothing is followed, opened or waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tests.mount.clients import refused
from zoefs.disk.beneath import RENAME_EXCHANGE, RENAME_NOREPLACE, Finder, Held, find, find_cached, is_local, rename


def held(path: Path) -> Held:
    return Held(os.open(path, os.O_PATH | os.O_DIRECTORY))


@pytest.mark.parametrize("finder", [find, find_cached])
def test_what_is_found_is_what_has_the_name(tmp_path: Path, finder: Finder) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "d").mkdir()
    (tmp_path / "s").symlink_to("/")
    os.mkfifo(tmp_path / "p")
    top = held(tmp_path)
    for name in ("f", "d", "s", "p"):
        assert os.path.samestat(finder(top, name.encode()).stat(), (tmp_path / name).lstat())
    link = finder(top, b"s")
    assert stat.S_ISLNK(link.stat().st_mode)
    assert os.readlink(b"", dir_fd=link.fd) == b"/"
    with refused(errno.ENOTDIR, errno.ELOOP):
        finder(link, b"etc")


def test_what_memory_does_not_have_is_not_waited_for(tmp_path: Path) -> None:
    top = held(tmp_path)
    with refused(errno.ENOENT, errno.EAGAIN):
        find_cached(top, b"nothing")
    with refused(errno.EAGAIN):
        find_cached(held(Path("/")), b"proc")  # another file system: who knows how long that takes


def test_a_descriptor_is_closed_with_the_last_who_holds_it(tmp_path: Path) -> None:
    one = held(tmp_path)
    fd, path = one.fd, one.path
    assert os.path.samefile(path, tmp_path)
    del one
    with refused(errno.EBADF):
        os.fstat(fd)


def test_renames_with_flags(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    top = held(tmp_path)
    rename(top, b"a", top, b"b", RENAME_EXCHANGE)
    assert (tmp_path / "a").read_text() == "b"
    with refused(errno.EEXIST):
        rename(top, b"a", top, b"b", RENAME_NOREPLACE)
    rename(top, b"a", top, b"b")
    assert os.listdir(tmp_path) == ["b"]


def test_a_pseudo_file_system_is_no_local_disk() -> None:
    assert not is_local(held(Path("/proc")))

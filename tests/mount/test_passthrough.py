"""The directories of HOME in MOUNT: what programs do to ordinary files works there, and no name leads out."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import itertools
import mmap
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.living import Tree, wait_for
from tests.mount.clients import fresh, needs, noise, pipe, put, refused
from zoefs.contract.home import SHARED
from zoefs.disk.beneath import RENAME_EXCHANGE, RENAME_NOREPLACE

_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


@attrs.frozen
class Place:
    """A directory of a test's own, as MOUNT shows it and as it is in HOME."""

    tree: Tree
    here: Path
    home: Path

    def shell(self, script: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.tree.shell(f"cd {self.here}\n{script}", check=check)


@pytest.fixture
def place(shared: Tree) -> Iterator[Place]:
    name = f"p{next(_numbers)}"
    (shared.mount / "context" / name).mkdir()
    yield Place(shared, shared.mount / "context" / name, shared.home / "context" / name)
    shutil.rmtree(shared.home / "context" / name)


def rename(old: Path, new: Path, flags: int) -> None:
    """renameat2(2)."""
    if _libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def picture(top: Path) -> dict[str, tuple[object, ...]]:
    """Everything that is to be seen of a tree but the times of access: modes, owners, times, links, content."""
    found: dict[str, tuple[object, ...]] = {}
    for where, directories, files in os.walk(top):
        for name in (*directories, *files, "."):
            path = Path(where, name)
            is_ = path.lstat()
            content = ""
            if stat.S_ISLNK(is_.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(is_.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            times = (is_.st_mtime_ns, is_.st_ctime_ns)
            key = os.path.relpath(path, top)
            found[key] = (is_.st_mode, is_.st_uid, is_.st_gid, is_.st_nlink, is_.st_size, *times, content)
    return found


# -- programs ----------------------------------------------------------------------------------------------------------


def test_vim_saves(place: Place) -> None:
    needs("vim")
    put(place.here / "f", b"one\ntwo\n")
    os.chmod(place.here / "f", 0o640)
    place.shell(
        "vim -u NONE -n -es -c '%s/two/2/' -c wq f; vim -u NONE -es -c 'set backup backupskip=' -c '1s/one/1/' -c wq f"
    )
    assert (place.home / "f").read_text() == "1\n2\n"
    assert stat.S_IMODE((place.home / "f").stat().st_mode) == 0o640
    assert sorted(os.listdir(place.home)) == ["f", "f~"]


def test_sed_cp_mv_and_rename_over(place: Place) -> None:
    place.shell(
        """
        set -e
        printf 'a\\nb\\n' > f; sed -i s/a/A/ f
        ln -s f s; mkdir -p d/e; echo x > d/e/x; chmod 700 d/e; touch -d 2001-02-03 d/e/x
        cp -a . ../{name}-copy; diff -r . ../{name}-copy; mv ../{name}-copy copy
        test "$(stat -c %Y copy/d/e/x)" = "$(stat -c %Y d/e/x)"; test -L copy/s
        echo new > .f.tmp; mv .f.tmp f
        install -m 600 f g; mv g d/e/x
    """.replace("{name}", place.here.name)
    )
    assert (place.home / "f").read_text() == (place.home / "d/e/x").read_text() == "new\n"
    assert (place.home / "copy/f").read_text() == "A\nb\n"
    assert picture(place.here).keys() == picture(place.home).keys()


def test_git(place: Place) -> None:
    needs("git")
    place.shell("""
        set -e
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
        git init -q -b main .; seq 1000 > f; git add f; git commit -qm one
        git checkout -qb other; seq 2000 > f; mkdir d; echo x > d/x; git add .; git commit -qm two
        git checkout -q main; test "$(wc -l < f)" = 1000; test ! -e d
        git merge -q other; git gc -q; git fsck --strict; test -z "$(git status --porcelain)"
        git clone -q . clone; git -C clone log --oneline
    """)
    assert (place.home / "clone/d/x").read_text() == "x\n"


def test_rsync(place: Place) -> None:
    needs("rsync")
    place.shell(
        "mkdir a; seq 9 > a/f; ln a/f a/g; ln -s f a/s; rsync -aH a/ b/; rsync -aHc --delete a/ b/; diff -r a b"
    )
    assert (place.home / "b/f").stat().st_ino == (place.home / "b/g").stat().st_ino


def test_tar_find_grep_du_and_hard_links(place: Place) -> None:
    (place.here / "big").write_bytes(noise(200_000))
    done = place.shell("""
        set -e
        mkdir d; echo needle > d/f; ln d/f d/g; ln -s f d/s; mkfifo d/p; chmod 751 d
        tar cf ../t.tar .; mkdir out; tar xpf ../t.tar -C out; rm ../t.tar; diff -r d/f out/d/f
        stat -c %a out/d; find . -type p | sort; grep -rl needle . -D skip | sort
        find out/d -samefile out/d/f | sort; ls -lR > /dev/null
    """)
    want = "751 ./d/p ./out/d/p ./d/f ./d/g ./out/d/f ./out/d/g out/d/f out/d/g"
    assert done.stdout.split() == want.split()
    assert (place.here / "d/f").stat().st_nlink == 2
    assert place.shell("du -s .").stdout == place.tree.shell(f"cd {place.home}; du -s .").stdout


# -- content -----------------------------------------------------------------------------------------------------------


def test_fsync_of_files_and_directories(place: Place) -> None:
    fd = os.open(place.here / "f", os.O_WRONLY | os.O_CREAT | os.O_SYNC, 0o600)
    os.write(fd, b"x")
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    directory = os.open(place.here, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    assert (place.home / "f").read_bytes() == b"x"


def test_locks_hold_between_processes_of_this_mount(place: Place) -> None:
    path = place.here / "f"
    put(path, b"x")
    for kind in ("flock", "lockf"):
        with path.open("rb+") as mine:
            getattr(fcntl, kind)(mine, fcntl.LOCK_EX)
            script = f"import fcntl; fcntl.{kind}(open({str(path)!r}, 'rb+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
            other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
            assert "BlockingIOError" in other.stderr, kind
        assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
    assert place.shell("flock f -c 'flock -n f true'", check=False).returncode == 1
    assert place.shell("flock f true; flock -n f echo free").stdout == "free\n"


def test_mappings_read_and_write(place: Place) -> None:
    path = place.here / "f"
    put(path, b"a" * 10_000)
    with path.open("rb+") as file, mmap.mmap(file.fileno(), 0) as shared, path.open("ab") as appends:
        assert shared[9_999:] == b"a"
        shared[5_000:5_003] = b"xyz"
        shared.flush()
        assert (place.home / "f").read_bytes() == b"a" * 5_000 + b"xyz" + b"a" * 4_997
        shared[0:3] = b"xyz"
        shared.flush()
        assert (place.home / "f").read_bytes()[:4] == b"xyza"
        assert (place.home / "f").stat().st_size == 10_000
        appends.write(b"end")
    assert (place.home / "f").read_bytes()[-4:] == b"aend"
    with path.open("rb") as reads, mmap.mmap(reads.fileno(), 0, access=mmap.ACCESS_COPY) as private:
        private[:1] = b"p"
    assert path.read_bytes()[:1] == b"x"


@pytest.mark.parametrize("sides", [("here", "here"), ("here", "home")])
def test_appenders_never_overwrite(place: Place, sides: tuple[str, str]) -> None:
    script = "import os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)\n"
    script += "for n in range(500): os.write(fd, b'%s %d\\n' % (sys.argv[2].encode() * 50, n))\n"
    argvs = [
        [sys.executable, "-c", script, str(getattr(place, side) / "f"), w] for side, w in zip(sides, "ab", strict=True)
    ]
    for one in [subprocess.Popen(argv) for argv in argvs]:
        assert one.wait(120) == 0
    lines = (place.here / "f").read_text().splitlines()
    assert [sorted(line for line in lines if line[0] == w) for w in "ab"] == [
        sorted(f"{w * 50} {n}" for n in range(500)) for w in "ab"
    ]
    assert len(lines) == 1000


@pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDWR])
def test_an_append_is_never_taken_for_a_mapped_page(place: Place, access: int) -> None:
    """HOME appended meanwhile, and the kernel here believes that the file ends with a page."""
    path = place.here / "f"
    keeps = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    appends = os.open(path, access | os.O_APPEND)
    try:
        os.write(appends, b"x" * 4096)
        put_at_end(place.home / "f", b"home\n")
        os.write(appends, b"mount\n")
        assert (place.home / "f").read_bytes()[4096:] == b"home\nmount\n"
        os.ftruncate(keeps, 4096)
        put_at_end(place.home / "f", b"home\n")
        os.write(appends, b"y" * 4096 * 100)
        assert (place.home / "f").read_bytes()[4096:] == b"home\n" + b"y" * 4096 * 100
    finally:
        os.close(keeps)
        os.close(appends)


def put_at_end(path: Path, data: bytes) -> None:
    """Append, as somebody in HOME does."""
    with path.open("ab", buffering=0) as file:
        file.write(data)


def test_a_mapping_of_a_handle_that_appends(place: Place) -> None:
    path = place.here / "f"
    put(path, b"a" * 10_000)
    with path.open("ab+") as file, mmap.mmap(file.fileno(), 0) as shared:
        for at in (0, 5_000, 9_999):
            shared[at : at + 1] = b"x"
            shared.flush()
        file.write(b"end")
    want = bytearray(b"a" * 10_000 + b"end")
    want[0] = want[5_000] = want[9_999] = ord("x")
    assert (place.home / "f").read_bytes() == bytes(want)


def test_a_removed_file_lives_while_it_is_open(place: Place) -> None:
    path = place.here / "f"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"before")
        path.unlink()
        assert os.listdir(place.home) == []
        os.write(fd, b" after")
        os.ftruncate(fd, 10)
        assert os.pread(fd, 100, 0) == b"before aft"
        assert (os.fstat(fd).st_size, os.fstat(fd).st_nlink) == (10, 0)
        os.fchmod(fd, 0o640)
        assert Path(f"/proc/{os.getpid()}/fd/{fd}").read_bytes() == b"before aft"
    finally:
        os.close(fd)


def test_truncation_times_modes_and_owners(place: Place) -> None:
    path, home = place.here / "f", place.home / "f"
    put(path, b"0123456789")
    os.truncate(path, 4)
    assert home.read_bytes() == b"0123"
    os.truncate(path, 6)
    assert path.read_bytes() == b"0123\0\0"
    os.utime(path, ns=(1_000_000_001, 2_000_000_002))
    assert (home.stat().st_atime_ns, home.stat().st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    os.chmod(path, 0o4751)
    assert stat.S_IMODE(home.stat().st_mode) == 0o4751
    os.symlink("nowhere", place.here / "s")
    os.utime(place.here / "s", ns=(3, 4), follow_symlinks=False)
    assert (place.home / "s").lstat().st_mtime_ns == 4
    place.shell("umask 0; echo x > w; mkdir -m 1777 t; umask 077; echo x > p")
    modes = [stat.S_IMODE((place.home / name).stat().st_mode) for name in "wtp"]
    assert modes == [0o666, 0o1777, 0o600]
    if os.getuid() == 0:
        os.chown(path, 12, 34)
        assert (home.stat().st_uid, home.stat().st_gid) == (12, 34)
        assert (path.stat().st_uid, path.stat().st_gid) == (12, 34)


def test_a_file_may_be_made_read_only_and_written(place: Place) -> None:
    fd = os.open(place.here / "f", os.O_RDWR | os.O_CREAT, 0o444)
    try:
        os.write(fd, b"0123456789")
        os.ftruncate(fd, 3)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o444
    finally:
        os.close(fd)
    assert (place.home / "f").read_bytes() == b"012"


def test_no_extended_attributes(place: Place) -> None:
    put(place.here / "f", b"x")
    with refused(errno.EOPNOTSUPP):
        os.setxattr(place.here / "f", "user.a", b"1")
    with refused(errno.EOPNOTSUPP):
        os.getxattr(place.here / "f", "user.a")


# -- both sides --------------------------------------------------------------------------------------------------------


def test_each_side_sees_the_other_at_once(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        put(place.home / "f", b"start")
        fd = os.open(place.here / "f", os.O_RDONLY)
        stack.callback(os.close, fd)
        for n in range(200):
            text = b"%d " % n * (1 + n % 7)
            put(place.home / "f", text)
            assert os.fstat(fd).st_size == len(text)
            assert os.pread(fd, 100, 0) == text
            assert (place.here / "f").read_bytes() == text
            put(place.here / "f", text + b"!")
            assert (place.home / "f").read_bytes() == text + b"!"
            (place.home / f"n{n}").mkdir()
            assert (place.here / f"n{n}").is_dir()
            (place.home / f"n{n}").rename(place.home / f"m{n}")
            assert not (place.here / f"n{n}").exists()
            assert f"m{n}" in os.listdir(place.here)
            (place.here / f"m{n}").rmdir()
            assert not (place.home / f"m{n}").exists()


def test_a_file_replaced_in_home_leaves_the_open_one_as_it_is(place: Place) -> None:
    put(place.here / "f", b"old")
    fd = os.open(place.here / "f", os.O_RDWR)
    try:
        put(place.home / "g", b"new")
        (place.home / "g").rename(place.home / "f")
        assert os.pread(fd, 10, 0) == b"old"
        assert os.fstat(fd).st_nlink == 0
        os.pwrite(fd, b"OLD", 0)
        assert (place.here / "f").read_bytes() == (place.home / "f").read_bytes() == b"new"
        assert (place.here / "f").stat().st_ino != os.fstat(fd).st_ino
    finally:
        os.close(fd)


def test_what_became_something_else_in_home_is_seen_so(place: Place) -> None:
    (place.here / "x").mkdir()
    put(place.here / "x/f", b"1")
    here = os.open(place.here / "x", os.O_RDONLY)
    try:
        for kind in range(20):
            shutil.rmtree(place.home / "x") if (place.home / "x").is_dir() else (place.home / "x").unlink()
            if kind % 2:
                (place.home / "x").mkdir()
                put(place.home / "x/f", b"%d" % kind)
                assert (place.here / "x/f").read_bytes() == b"%d" % kind
            else:
                put(place.home / "x", b"%d" % kind)
                assert (place.here / "x").read_bytes() == b"%d" % kind
        with refused(errno.ENOENT, errno.ESTALE):
            os.stat("f", dir_fd=here)
    finally:
        os.close(here)


def test_a_directory_moved_in_home_keeps_who_works_in_it(place: Place) -> None:
    (place.here / "a/b").mkdir(parents=True)
    fd = os.open(place.here / "a/b", os.O_RDONLY)
    try:
        (place.home / "a").rename(place.home / "c")
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
        assert os.listdir(place.home / "c/b") == ["f"]
    finally:
        os.close(fd)


@pytest.mark.parametrize("below", ["", "b"])
def test_a_directory_moved_out_of_its_tree_in_home_is_not_followed(place: Place, base: Path, below: str) -> None:
    (place.here / "a/b").mkdir(parents=True)
    put(place.here / "a/b/f", b"x")
    put(place.here / "a/f", b"x")
    fd = os.open(place.here / "a" / below, os.O_RDONLY)
    calls: list[Callable[[], object]] = [
        lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd),
        lambda: os.open("f", os.O_RDONLY, dir_fd=fd),
        lambda: os.mkdir("d", dir_fd=fd),
        lambda: os.unlink("f", dir_fd=fd),
        lambda: os.stat("f", dir_fd=fd),
        lambda: os.chmod(f"/proc/self/fd/{fd}", 0o711),
    ]
    try:
        for elsewhere in (base / place.here.name, place.tree.home / "roles" / place.here.name):
            (place.home / "a").rename(elsewhere)
            before = picture(elsewhere)
            for call in calls:
                with refused(errno.ESTALE):
                    call()
            assert picture(elsewhere) == before
            elsewhere.rename(place.home / "a")
            os.close(os.open("f", os.O_RDWR, dir_fd=fd))
    finally:
        os.close(fd)


# -- names -------------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[int, Callable[[Path], object]]] = {
    "open nothing": (errno.ENOENT, lambda at: os.open(at / "no", os.O_RDONLY)),
    "below nothing": (errno.ENOENT, lambda at: (at / "no/f").stat()),
    "unlink nothing": (errno.ENOENT, lambda at: (at / "no").unlink()),
    "rename nothing": (errno.ENOENT, lambda at: (at / "no").rename(at / "n2")),
    "empty name": (errno.ENOENT, lambda at: os.stat("")),
    "mkdir over": (errno.EEXIST, lambda at: (at / "f").mkdir()),
    "create over": (errno.EEXIST, lambda at: os.open(at / "f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    "symlink over": (errno.EEXIST, lambda at: os.symlink("x", at / "f")),
    "link over": (errno.EEXIST, lambda at: os.link(at / "f", at / "g")),
    "mkfifo over": (errno.EEXIST, lambda at: os.mkfifo(at / "f")),
    "no replacing": (errno.EEXIST, lambda at: rename(at / "f", at / "g", RENAME_NOREPLACE)),
    "exchange with nothing": (errno.ENOENT, lambda at: rename(at / "f", at / "no", RENAME_EXCHANGE)),
    "below a file": (errno.ENOTDIR, lambda at: (at / "f/x").stat()),
    "rmdir a file": (errno.ENOTDIR, lambda at: (at / "f").rmdir()),
    "list a file": (errno.ENOTDIR, lambda at: os.listdir(at / "f")),
    "directory over file": (errno.ENOTDIR, lambda at: (at / "d").rename(at / "f")),
    "write a directory": (errno.EISDIR, lambda at: os.open(at / "d", os.O_WRONLY)),
    "unlink a directory": (errno.EISDIR, lambda at: (at / "d").unlink()),
    "file over directory": (errno.EISDIR, lambda at: (at / "f").rename(at / "d")),
    "truncate a directory": (errno.EISDIR, lambda at: os.truncate(at / "d", 0)),
    "rmdir what is full": (errno.ENOTEMPTY, lambda at: (at / "full").rmdir()),
    "rename over what is full": (errno.ENOTEMPTY, lambda at: (at / "d").rename(at / "full")),
    "a loop": (errno.ELOOP, lambda at: (at / "loop").stat()),
    "no following": (errno.ELOOP, lambda at: os.open(at / "s", os.O_RDONLY | os.O_NOFOLLOW)),
    "too long": (errno.ENAMETOOLONG, lambda at: (at / ("n" * 256)).stat()),
    "too long to make": (errno.ENAMETOOLONG, lambda at: (at / ("n" * 256)).mkdir()),
    "into itself": (errno.EINVAL, lambda at: (at / "full").rename(at / "full/x")),
    "read a link of a file": (errno.EINVAL, lambda at: os.readlink(at / "f")),
    "link a directory": (errno.EPERM, lambda at: os.link(at / "d", at / "d2")),
    "a device": (errno.EPERM, lambda at: os.mknod(at / "dev", stat.S_IFCHR | 0o600, os.makedev(1, 3))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_have_the_errno_of_any_file_system(place: Place, mistake: str) -> None:
    for name in ("f", "g"):
        put(place.here / name, b"x")
    (place.here / "d").mkdir()
    (place.here / "full").mkdir()
    put(place.here / "full/f", b"x")
    os.symlink("f", place.here / "s")
    os.symlink("loop", place.here / "loop")
    before = picture(place.home)
    number, call = MISTAKES[mistake]
    with refused(number):
        call(place.here)
    assert picture(place.home) == before


def test_renames_over_exchange_and_noreplace(place: Place) -> None:
    for name in "ab":
        put(place.here / name, name.encode())
    rename(place.here / "a", place.here / "b", RENAME_EXCHANGE)
    assert (place.here / "a").read_bytes() + (place.here / "b").read_bytes() == b"ba"
    rename(place.here / "a", place.here / "c", RENAME_NOREPLACE)
    (place.here / "b").rename(place.here / "c")
    assert [(place.home / name).read_bytes() for name in os.listdir(place.home)] == [b"a"]
    (place.here / "d/e").mkdir(parents=True)
    put(place.here / "d/e/f", b"x")
    (place.here / "d").rename(place.here / "D")
    assert (place.here / "D/e/f").read_bytes() == b"x"


def test_links_are_one_file(place: Place) -> None:
    put(place.here / "a", b"x")
    os.link(place.here / "a", place.here / "b")
    put(place.here / "b", b"longer")
    assert (place.here / "a").stat() == (place.here / "b").stat()
    (place.here / "a").unlink()
    assert (place.here / "b").stat().st_nlink == 1
    os.symlink("b", place.here / "s")
    os.link(place.here / "s", place.here / "t", follow_symlinks=False)
    assert os.readlink(place.home / "t") == "b"


def test_between_the_trees(place: Place, shared: Tree) -> None:
    put(place.here / "f", b"x")
    (place.here / "f").rename(shared.mount / "tasks/f")
    assert (shared.home / "tasks/f").read_bytes() == b"x"
    agent = fresh(shared)
    for call in (
        lambda: (shared.mount / "tasks/f").rename(agent / "inbox/.f"),
        lambda: (agent / "spec").rename(place.here / "spec"),
        lambda: os.link(agent / "spec", place.here / "spec"),
    ):
        with refused(errno.EXDEV, errno.EPERM):
            call()
    shared.shell(f"mv {shared.mount}/tasks/f {agent}/inbox/.f; mv {agent}/inbox/.f {agent}/inbox/f")
    assert shared.ended(agent.name, "f") == ("done", b"x")
    with refused(errno.EPERM):
        (shared.mount / "tasks").rmdir()


def test_log_is_to_read(place: Place, shared: Tree) -> None:
    log = shared.mount / "log"
    fresh(shared)
    assert (log / "zoefs.jsonl").read_bytes() == (shared.home / "log/zoefs.jsonl").read_bytes()
    journal = next((log / "agents").iterdir())
    put(place.here / "f", b"x")
    changes: list[Callable[[], object]] = [
        lambda: os.open(journal, os.O_WRONLY),
        lambda: os.open(journal, os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(log / "new", os.O_CREAT | os.O_WRONLY),
        lambda: os.truncate(journal, 0),
        lambda: os.chmod(journal, 0o644),
        lambda: os.utime(journal),
        lambda: os.chmod(log, 0o777),
        journal.unlink,
        (log / "agents").rmdir,
        (log / "new").mkdir,
        lambda: os.mkfifo(log / "new"),
        lambda: os.symlink("x", log / "new"),
        lambda: journal.rename(log / "new"),
        lambda: journal.rename(place.here / "new"),
        lambda: (place.here / "f").rename(log / "new"),
        lambda: os.link(place.here / "f", log / "new"),
    ]
    for change in changes:
        with refused(errno.EROFS):
            change()
    with refused(errno.EXDEV):
        os.link(journal, place.here / "journal")
    os.link(shared.home / "log/agents" / journal.name, place.home / "linked")
    assert (place.here / "linked").stat().st_ino != journal.stat().st_ino
    with refused(errno.EROFS):
        os.open(journal, os.O_RDWR)


def test_hosts_hold_symlinks(place: Place, shared: Tree) -> None:
    hosts = shared.mount / "hosts"
    (hosts / "h").symlink_to(place.home)
    put(place.home / "f", b"far")
    assert (hosts / "h/f").read_bytes() == b"far"
    assert os.readlink(shared.home / "hosts/h") == str(place.home)
    put(place.here / "g", b"x")
    for call in (
        (hosts / "d").mkdir,
        lambda: os.open(hosts / "n", os.O_CREAT | os.O_WRONLY),
        lambda: os.mkfifo(hosts / "n"),
        lambda: (place.here / "g").rename(hosts / "g"),
    ):
        with refused(errno.EPERM):
            call()
    (hosts / "h").rename(hosts / "i")
    (hosts / "i").unlink()
    assert os.listdir(shared.home / "hosts") == []


def test_what_leaves_hosts_is_ordinary(place: Place, shared: Tree) -> None:
    """A directory that HOME has there can be moved out, and is no place for symlinks alone any more."""
    (shared.home / "hosts/d").mkdir()
    assert os.listdir(shared.mount / "hosts") == ["d"]
    with refused(errno.EPERM):
        (shared.mount / "hosts/d/x").touch()
    (shared.mount / "hosts/d").rename(place.here / "d")
    put(place.here / "d/x", b"x")
    with refused(errno.EPERM):
        (place.here / "d").rename(shared.mount / "hosts/d")


@pytest.mark.parametrize("side", ["mount", "home"])
def test_a_directory_is_of_the_tree_that_it_was_moved_to(place: Place, shared: Tree, side: str) -> None:
    name = f"{place.here.name}-d"
    (shared.home / "hosts" / name).mkdir()
    fd = os.open(shared.mount / "hosts" / name, os.O_RDONLY)
    try:
        top = getattr(shared, side)
        (top / "hosts" / name).rename(top / "context" / place.here.name / name)
        put(place.here / name / "f", b"x")
        (place.here / name / "e").mkdir()
        assert sorted(os.listdir(place.home / name)) == ["e", "f"]
        (place.here / name / "f").unlink()
        (place.here / name / "e").rmdir()
        (place.home / name).rename(shared.home / "hosts" / name)
        with refused(errno.EPERM):
            put(shared.mount / "hosts" / name / "f", b"x")
    finally:
        os.close(fd)
        shutil.rmtree(shared.home / "hosts" / name, ignore_errors=True)


def test_no_symlink_leads_out(place: Place, base: Path) -> None:
    (base / "secret").mkdir()
    put(base / "secret/f", b"secret")
    for n, target in enumerate(("/", "..", "../..", "../../agents", str(base / "secret"), "//proc/self/root")):
        (place.here / f"s{n}").symlink_to(target)
        assert os.readlink(place.here / f"s{n}") == target
        assert (place.here / f"s{n}").is_symlink()
    (shared_root := place.tree.home / "context-aside").mkdir()
    (place.tree.home / "channels").rename(shared_root / "channels")
    try:
        (place.tree.home / "channels").symlink_to(base / "secret")
        with refused(errno.ENOTDIR):
            (place.tree.mount / "channels/f").read_bytes()
        (place.tree.home / "channels").unlink()
        with refused(errno.ENOENT):
            os.listdir(place.tree.mount / "channels")
    finally:
        (shared_root / "channels").rename(place.tree.home / "channels")
        shared_root.rmdir()
    assert os.listdir(place.tree.mount / "channels") == []


def test_a_swap_for_a_symlink_never_leads_out(place: Place, base: Path) -> None:
    """Somebody swaps a directory for a symlink and back as fast as he can, while others work below it."""
    (base / "out").mkdir()
    put(base / "out/f", b"secret")
    (place.home / "d").mkdir()
    put(place.home / "d/f", b"inside")
    (place.home / "l").symlink_to(base / "out")
    ends = time.monotonic() + 3
    here = os.open(place.here / "d", os.O_RDONLY)

    def swap() -> None:
        while time.monotonic() < ends:
            rename(place.home / "d", place.home / "l", RENAME_EXCHANGE)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError):
                fd = os.open("f", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here)
                seen.add(os.read(fd, 100))
                os.close(fd)
            with contextlib.suppress(OSError):
                os.close(os.open("new", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
            with contextlib.suppress(OSError):
                os.unlink("new", dir_fd=here)
    finally:
        swapper.join()
        os.close(here)
    assert seen == {b"inside"}
    assert os.listdir(base / "out") == ["f"]


def test_thousands_of_entries(place: Place, soak: bool) -> None:
    """More than one reply holds, and more than is looked up at once."""
    count = 10_000 if soak else 2_000
    for n in range(count):
        (place.home / f"n{n}").touch()
    assert set(os.listdir(place.here)) == {f"n{n}" for n in range(count)}
    with os.scandir(place.here) as entries:
        assert sum(entry.is_file() for entry in entries) == count
    place.shell("find . -type f -delete")
    assert os.listdir(place.home) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount another disk in HOME")
def test_another_disk_in_home(place: Place) -> None:
    """Its files are shown, are others than those of HOME's disk, and nothing keeps it from being unmounted."""
    (place.home / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place.home / "disk")], check=True, timeout=60)
    try:
        place.shell(
            "set -e; mkdir -p disk/d/e; echo x > disk/d/e/f; cp -a disk/d disk/c; diff -r disk/d disk/c; ls -lR"
        )
        assert (place.home / "disk/c/e/f").read_text() == (place.here / "disk/d/e/f").read_text() == "x\n"
        assert (place.here / "disk/d/e/f").stat().st_ino != (place.here / "disk/c/e/f").stat().st_ino
        with refused(errno.EXDEV):
            (place.here / "disk/c").rename(place.here / "c")
    finally:
        disk = str(place.home / "disk")
        try:
            wait_for(lambda: subprocess.run(["umount", disk], capture_output=True).returncode == 0, "unmounted", 10)
        finally:
            subprocess.run(["umount", "-l", disk], capture_output=True, check=False)
    assert os.listdir(place.here / "disk") == []


def test_sockets_and_fifos_meet_here(place: Place) -> None:
    os.mkfifo(place.here / "p")
    done = place.shell("echo through > p & cat p; wait")
    assert done.stdout == "through\n"
    where = os.getcwd()
    os.chdir(place.here)
    try:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("s")
            server.listen()
            client.connect("s")
    finally:
        os.chdir(where)


# -- manners -----------------------------------------------------------------------------------------------------------


def test_looking_changes_nothing(place: Place, shared: Tree) -> None:
    place.shell("mkdir -p d/e; echo x > d/e/f; ln -s d s; mkfifo p; ln d/e/f d/g")
    tops = [shared.home / name for name in (*SHARED, "hosts")]
    before = [picture(top) for top in tops]
    shared.shell(f"""
        cd {shared.mount}
        ls -lR . > /dev/null; find . -ls > /dev/null; du -a . > /dev/null
        grep -r --devices=skip nothing {" ".join(SHARED)} hosts log
        tar cf - --exclude=p . 2> /dev/null | wc -c > /dev/null
    """)
    assert [picture(top) for top in tops] == before


def test_statfs_is_that_of_homes_disk(place: Place, shared: Tree) -> None:
    for path in (place.here, shared.mount):
        found, disk = os.statvfs(path), os.statvfs(shared.home)
        assert (found.f_blocks, found.f_files, found.f_namemax) == (disk.f_blocks, disk.f_files, disk.f_namemax)


def test_a_lease_in_home_delays_only_who_opens_that_file(place: Place, shared: Tree, base: Path) -> None:
    """Its holder is asked to give it up, and may take its time: some file servers hold leases."""
    agent = fresh(shared)
    put(place.home / "f", b"leased")
    script = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    script += "; signal.signal(signal.SIGIO, lambda *_: print('asked', flush=True)); print('leased', flush=True)"
    script += "; sys.stdin.read()"
    argv = [sys.executable, "-c", "import signal; " + script, str(place.home / "f")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert pipe(holder.stdout).readline() == "leased\n"
        with subprocess.Popen(["cat", place.here / "f"], stdout=subprocess.PIPE, text=True) as reader:
            assert pipe(holder.stdout).readline() == "asked\n"
            assert (agent / "status").read_text() == "await\n"
            assert os.listdir(place.here) == ["f"]
            assert reader.poll() is None
            pipe(holder.stdin).close()
            assert pipe(reader.stdout).read() == "leased"


def test_other_writers_see_who_is_killed(place: Place) -> None:
    """A writer that is killed leaves what it wrote, and the file can be written again."""
    script = "while :; do echo line >> f; done"
    writer = subprocess.Popen(["bash", "-c", script], cwd=place.here)
    wait_for(lambda: (place.home / "f").exists() and (place.home / "f").stat().st_size > 100, "it writes")
    writer.send_signal(signal.SIGKILL)
    writer.wait(60)
    assert set((place.here / "f").read_text().splitlines()) == {"line"}
    put(place.here / "f", b"mine")
    assert (place.home / "f").read_bytes() == b"mine"


@contextlib.contextmanager
def copying(place: Place) -> Iterator[subprocess.Popen[str]]:
    """A client that copies a big file through the mount again and again."""
    (place.home / "big").write_bytes(noise(1 << 20) * 64)
    script = "echo begun; while :; do cp big copy; sync copy; done"
    with subprocess.Popen(["bash", "-c", script], cwd=place.here, stdout=subprocess.PIPE, text=True) as copier:
        try:
            assert pipe(copier.stdout).readline() == "begun\n"
            yield copier
        finally:
            copier.kill()


def test_a_status_is_read_while_a_big_file_is_copied(place: Place, shared: Tree) -> None:
    """The slowest of the reads is bounded by what one of them costs, not by what a copy takes."""
    agent = fresh(shared)
    with copying(place):
        took = []
        for _ in range(300):
            began = time.monotonic()
            assert (agent / "status").read_bytes() == b"await\n"
            took.append(time.monotonic() - began)
            time.sleep(0.005)
    assert sorted(took)[len(took) // 2] < 0.1

"""Files replaced as a whole: old bytes or new, whoever looks, whatever fails."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from zoefs.disk.files import names, pwrite_all, read, read_text, replace, size, sync_dir, write_all

FORK = multiprocessing.get_context("fork")


def in_child(act: Callable[[], None]) -> None:
    """Run `act` in a child of its own, which may spoil its limits; fail with what it raised."""
    here, there = FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            act()
            there.send("")
        except BaseException:
            there.send(traceback.format_exc())

    child = FORK.Process(target=run)
    child.start()
    there.close()
    try:
        said = here.recv() if here.poll(20) else "the child said nothing for 20 s"
    except EOFError:
        said = "the child died"
    child.join(5)
    if child.is_alive():
        child.kill()
        child.join(5)
    child.close()
    here.close()
    assert said == "", said


def limit_files(length: int | None) -> None:
    """Let no file of this process grow beyond `length` bytes (Python ignores SIGXFSZ: write fails with EFBIG)."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if length is None else length, hard))


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff\r\n", b"y" * 3_000_000])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "spec.toml"
    replace(path, data)
    assert read(path) == data
    assert size(path) == len(data)
    replace(path, b"other")
    assert read(path) == b"other"
    assert names(tmp_path) == ["spec.toml"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_mode_is_obeyed(tmp_path: Path) -> None:
    replace(tmp_path / "x", b"", 0o400)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o400


def test_who_has_the_old_file_open_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "out"
    replace(path, b"old" * 1000)
    with path.open("rb") as file:
        assert file.read(3) == b"old"
        replace(path, b"new")
        assert file.read() == b"old" * 999
    assert read(path) == b"new"


def test_a_full_disk_leaves_the_old_file_and_no_temp(tmp_path: Path) -> None:
    path = tmp_path / "out"
    replace(path, b"old")

    def act() -> None:
        limit_files(1000)
        with pytest.raises(OSError, match="too large"):
            replace(path, b"n" * 5000)
        with pytest.raises(OSError, match="too large"):
            replace(tmp_path / "fresh", b"n" * 5000)
        replace(path, b"n" * 1000)

    in_child(act)
    assert read(path) == b"n" * 1000
    assert names(tmp_path) == ["out"]


def test_a_rename_that_fails_leaves_no_temp(tmp_path: Path) -> None:
    (tmp_path / "out" / "full").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        replace(tmp_path / "out", b"x")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["full"]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace(tmp_path / "no" / "out", b"x")
    assert names(tmp_path) == []


def test_a_reader_sees_the_old_bytes_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "out"
    bodies = [bytes([65 + n]) * (50_000 + n) for n in range(20)]
    replace(path, bodies[0])

    def write() -> None:
        for n in range(100):
            replace(path, bodies[n % len(bodies)])

    child = FORK.Process(target=write)
    child.start()
    seen = set()
    while child.is_alive():
        data = read(path)
        assert data in bodies
        seen.add(data[:1])
    child.join(5)
    assert child.exitcode == 0
    assert len(seen) > 1
    child.close()


def test_two_threads_that_replace_one_file_do_not_meet_in_its_temp(tmp_path: Path) -> None:
    """The mount commits in worker threads; two handles may flush one file at a time."""
    path = tmp_path / "spec.toml"
    bodies = [bytes([65 + n]) * 400_000 for n in range(4)]
    wrong: list[str] = []

    def write(body: bytes) -> None:
        for _ in range(25):
            try:
                replace(path, body)
            except OSError as error:
                wrong.append(repr(error))
            if read(path) not in bodies:
                wrong.append("a reader saw a mixture")

    threads = [threading.Thread(target=write, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong, f"{len(wrong)} times, first: {wrong[0]}"
    assert names(tmp_path) == ["spec.toml"]


def test_every_byte_is_written(tmp_path: Path) -> None:
    """A pipe takes less than it is given, so write goes on."""
    ends = os.pipe()
    data = os.urandom(300_000)
    got = bytearray()

    def drain() -> None:
        while chunk := os.read(ends[0], 7001):
            got.extend(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    write_all(ends[1], data)
    os.close(ends[1])
    reader.join(10)
    os.close(ends[0])
    assert bytes(got) == data


def test_every_byte_is_written_at_its_place(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    try:
        pwrite_all(fd, memoryview(b"world"), 5)
        pwrite_all(fd, b"hello", 0)
        pwrite_all(fd, b"", 100)
    finally:
        os.close(fd)
    assert read(tmp_path / "x") == b"helloworld"


def test_what_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b" \xff word\n")
    for path in (tmp_path / "no", tmp_path / "no" / "no", tmp_path / "file" / "x"):
        assert (read(path), read_text(path), names(path), size(path)) == (None, "", [], 0)
    assert read_text(tmp_path / "file") == "\ufffd word"
    assert names(tmp_path / "file") == []
    assert size(tmp_path / "file") == 8
    sync_dir(tmp_path)
    with pytest.raises(NotADirectoryError):
        sync_dir(tmp_path / "file")

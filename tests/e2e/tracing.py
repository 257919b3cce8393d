"""The system calls of a daemon, in their order, as strace saw them; and the FUSE requests among them.

Source of the layouts: fuse.h (`fuse_in_header`, `fuse_out_header`; the file handle is the first word of the body of
WRITE, FLUSH, FSYNC and RELEASE). A moment is a line number of the log: a call begins at one and has ended at another
if a thread of the same process was seen in between.

What it proves. The kernel lets close(2) return after the reply to FLUSH, rename(2) after that to RENAME, write(2)
after that to WRITE. So what had ended before the daemon wrote the reply had ended before the client's call returned.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

FUSE = "/dev/fuse"
RENAME, WRITE, RELEASE, FSYNC, FLUSH, RENAME2 = 12, 16, 18, 20, 25, 45
CALLS = (
    "read,readv,write,writev,pwrite64,pwritev,openat,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,"
    "unlink,unlinkat,ftruncate,fallocate,execve"
)

_LINE = re.compile(r"(\d+)\s+(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_RESULT = re.compile(r"\)?\s+= (-?\d+)(?:<((?:\\x..)*)>)?[^=]*$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PATH = re.compile(r"\b\d+<((?:\\x[0-9a-f]{2})+)>")


@attrs.frozen
class Call:
    """One system call. `path`: of its first descriptor; `strings`: its texts and buffers; `result`: -1 for an error."""

    name: str
    path: str
    strings: tuple[bytes, ...]
    result: int
    began: int
    ended: int

    @property
    def names(self) -> tuple[str, ...]:
        """Its strings as paths."""
        return tuple(os.fsdecode(text) for text in self.strings)


@attrs.frozen
class Request:
    """One FUSE request. `asked`: when the daemon had read it; `answered`: when it began to write the reply."""

    opcode: int
    fh: int
    asked: int
    answered: int
    error: int


def needs(program: str) -> None:
    """Skip where a program is not installed; fail where CI is set."""
    if shutil.which(program) is None:
        sentence = f"there is no {program} here; scripts/setup.sh VENV dev ci installs it"
        if os.environ.get("CI"):
            pytest.fail(f"CI must run this test, and {sentence}")
        pytest.skip(sentence)


@contextlib.contextmanager
def traced(pid: int, log: Path, text: int = 128) -> Iterator[None]:
    """Trace a process, its threads and its children into `log` while inside; buffers are kept up to `text` bytes."""
    needs("strace")
    words = ["strace", "-f", "-y", "-xx", "-s", str(text), "-o", str(log), "-e", f"trace={CALLS}", "-p", str(pid)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert select.select([process.stderr], [], [], 30)[0], "strace did not attach"
        said = process.stderr.readline()
        assert "attached" in said, said
        yield
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def calls(log: Path) -> list[Call]:
    """The calls of a log, in the order in which they ended."""
    found: list[Call] = []
    open_calls: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(log.read_text(errors="replace").splitlines()):
        match = _LINE.match(line)
        if match is None:
            continue
        pid, resumed, name, rest = match.groups()
        if rest.endswith("<unfinished ...>"):
            open_calls[pid] = (number, rest.removesuffix("<unfinished ...>"))
            continue
        began, first = open_calls.pop(pid, (number, "")) if resumed else (number, "")
        text = first + rest
        result = _RESULT.search(text)
        if result is not None:
            paths = [_decode(path) for path in _PATH.findall(text[: result.start()])]
            strings = tuple(_decode(string) for string in _STRING.findall(text))
            path = os.fsdecode(paths[0]) if paths else ""
            found.append(Call(resumed or name, path, strings, int(result[1]), began, number))
    return found


def _decode(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def requests(found: list[Call]) -> list[Request]:
    """The FUSE requests among the calls that were answered."""
    asked: dict[int, tuple[int, int, int]] = {}
    told: list[Request] = []
    for call in sorted(found, key=lambda call: call.ended):
        if call.path != FUSE or not call.strings or call.result < 16:
            continue
        if call.name in ("read", "readv"):
            head = call.strings[0]
            _, opcode, unique = struct.unpack_from("<IIQ", head)
            fh = struct.unpack_from("<Q", head, 40)[0] if len(head) >= 48 else 0
            asked[unique] = (opcode, fh, call.ended)
        else:
            _, error, unique = struct.unpack_from("<IiQ", b"".join(call.strings))
            if unique in asked:
                opcode, fh, at = asked.pop(unique)
                told.append(Request(opcode, fh, at, call.began, error))
    return told


def the(found: list[Call], name: str, wanted: Callable[[Call], bool], after: int = -1, before: int = 1 << 60) -> Call:
    """The first call named so (names split at `|`) that is wanted, began after a moment, succeeded and ended before."""
    for call in sorted(found, key=lambda call: call.began):
        inside = call.began > after and call.ended < before
        if call.name in name.split("|") and call.result >= 0 and inside and wanted(call):
            return call
    told = "\n".join(f"{c.began}-{c.ended} {c.name} {c.path} {c.names} = {c.result}" for c in found if c.path != FUSE)
    raise AssertionError(f"no {name} between {after} and {before}:\n{told}")

"""A client that sends prompts while the programs behind the mount are killed, and never loses count.

    python writer.py MOUNT LOG STOP NAME SEED SMALL_OR_ANY AGENT...

Rule. A prompt is accepted when close() (for `mv`: rename) returned, or when its only write, below 4,096 bytes, did.
After an error the writer looks for the id in `inbox/` before it sends again: there is a receipt, or the same id may be
used once more. What went through `in` has no id of ours, so an error there leaves it `unknown`, and it is not repeated.

LOG, JSON Lines: `{token, agent, way, sha, bytes, fate}`; fate is `begun`, then one of `accepted unknown cut`. `token`
is the first line of the prompt and its id. An error that was survived is `{errno}`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

SINGLE = 4096
CHUNK = 128 * 1024
PATIENCE_S = 120.0
SIZES = (10, 60, 500, 4_000, 4_095, 4_096, 9_000, 70_000, 131_073, 400_000, 1_048_576)
SMALL_SIZES = (10, 60, 500, 4_095, 4_096, 5_000, 20_000)
DEAD = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT, errno.ESHUTDOWN, errno.EAGAIN, errno.ESTALE}


class Writer:
    """See module."""

    def __init__(
        self, mount: Path, log: Path, stop: Path, name: str, seed: int, small: bool, agents: list[str]
    ) -> None:
        self.agents_dir = mount / "agents"
        self.stop = stop
        self.name = name
        self.random = random.Random(seed)
        self.sizes = SMALL_SIZES if small else SIZES
        self.slow = small
        self.agents = agents
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def run(self) -> None:
        """Send until the file STOP exists."""
        n = 0
        while not self.stop.exists():
            n += 1
            self.one(f"{self.name}-{n:06d}{self.random.choice('ooox')}")
            time.sleep(self.random.uniform(0.0, 0.4))

    def one(self, token: str) -> None:
        agent = self.agents_dir / self.random.choice(self.agents)
        way = self.random.choice(("in", "id", "mv"))
        text = self.text(token, self.random.choice(self.sizes))
        facts = {"token": token, "agent": agent.name, "way": way, "bytes": len(text)}
        facts["sha"] = hashlib.sha256(text).hexdigest()
        self.note(**facts, fate="begun")
        fate = getattr(self, f"by_{way}")(agent, token, text)
        self.note(**facts, fate=fate)
        while self.slow and way != "in" and not self.stop.exists() and self.look(agent, token) not in ("done", "lost"):
            time.sleep(0.1)

    def text(self, token: str, size: int) -> bytes:
        """The token, a newline and letters, `size` bytes in all; never ends in a newline."""
        body = self.random.randbytes(max(0, size - len(token) - 1) // 2 + 1).hex().encode()
        return (token.encode() + b"\n" + body)[: max(size, len(token))].removesuffix(b"\n")

    def by_in(self, agent: Path, token: str, text: bytes) -> str:
        fd = self.opened(agent / "in", os.O_WRONLY)
        return "accepted" if fd is not None and self.written(fd, text) else "unknown"

    def by_id(self, agent: Path, token: str, text: bytes) -> str:
        while True:
            fd = self.opened(agent / "inbox" / token, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            if fd is not None and self.written(fd, text):
                return "accepted"
            if fate := self.look(agent, token):
                return "cut" if fate == "lost" else "accepted"

    def by_mv(self, agent: Path, token: str, text: bytes) -> str:
        draft = agent / "inbox" / f".{token}"
        while True:
            fd = self.opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            if fd is not None and self.written(fd, text):
                with self.survived():
                    os.rename(draft, agent / "inbox" / token)
                    return "accepted"
            if fate := self.look(agent, token):
                return "cut" if fate == "lost" else "accepted"

    def opened(self, path: Path, flags: int) -> int | None:
        """A descriptor, waiting while nobody serves; None where the name exists already."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                with self.survived():
                    return os.open(path, flags, 0o600)
            except FileExistsError:
                return None
            time.sleep(0.02)
        raise TimeoutError(f"{path} cannot be opened")

    def written(self, fd: int, text: bytes) -> bool:
        """Write all and close; whether the prompt was accepted by that."""
        done, writes = 0, 0
        with self.survived():
            while done < len(text):
                done += os.write(fd, text[done : done + CHUNK])
                writes += 1
        closed = False
        with self.survived():
            os.close(fd)
            closed = True
        return done == len(text) and (closed or (writes == 1 and done < SINGLE))

    def look(self, agent: Path, id: str) -> str:
        """What the receipt of `id` says; empty where there is none. Waits while nobody serves."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with self.survived():
                if (agent / "status").read_text():
                    head = (agent / "inbox" / id).read_text().partition("\n")[0] if self.exists(agent, id) else "none: "
                    word = head.partition(": ")[2]
                    if head and word != "writing":
                        return word
            time.sleep(0.02)
        raise TimeoutError(f"{agent}/inbox/{id} cannot be read")

    def exists(self, agent: Path, id: str) -> bool:
        """Whether there is a receipt; raises OSError where nobody serves."""
        try:
            os.stat(agent / "inbox" / id)
        except FileNotFoundError:
            os.stat(agent / "status")
            return False
        return True

    def survived(self) -> Survived:
        return Survived(self)

    def note(self, **facts: object) -> None:
        os.write(self._log, json.dumps(facts).encode() + b"\n")


class Survived:
    """Notes an error that the death of a daemon explains and goes on behind the block; any other is raised."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        """Nothing is needed."""

    def __exit__(self, kind: object, value: BaseException | None, trace: object) -> bool:
        if isinstance(value, OSError) and value.errno in DEAD:
            self._writer.note(errno=errno.errorcode[value.errno])
            return True
        return False


def main() -> None:
    mount, log, stop, name, seed, size, *agents = sys.argv[1:]
    Writer(Path(mount), Path(log), Path(stop), name, int(seed), size == "small", agents).run()


if __name__ == "__main__":
    main()

"""`follow`: an agent's journal as it grows, told to a person or passed on.

Rules. Every event is told once: `seq` says which were. A descriptor of `events` reads on over rotations; after the
end of a mount the file is opened anew, and what went into older segments meanwhile is read from `log`. poll(2) tells
of more; where it always says readable (sshfs), empty reads are braked.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from zoefs.cli.complete import agent_names
from zoefs.cli.fail import Failure
from zoefs.cli.narrate import Narrator, visible
from zoefs.cli.tree import PATIENCE, Tree, within
from zoefs.cli.watch import AGAIN
from zoefs.cli.where import mount_option
from zoefs.contract.events import Event, Kind, decode_lines
from zoefs.contract.home import segment_of
from zoefs.contract.words import Exit
from zoefs.disk.segments import older

CHUNK = 1 << 17
"""Bytes of one read: what a FUSE mount gives at once."""
WAIT = 2.0
"""Seconds of one poll(2)."""
SHOWN = 1 << 16
"""Bytes of a prompt or of an answer that are read to be shown."""


class Journal:
    """The events of an agent behind `seq`, over rotations and the ends of mounts."""

    def __init__(self, tree: Tree, name: str) -> None:
        self._tree = tree
        self._name = name
        self._path = tree.agent(name) / "events"
        self._fd = -1
        self._offset = 0
        self._rest = b""
        self.seq = 0

    def close(self) -> None:
        """Give the descriptor back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # a dead mount says so even here
                os.close(fd)

    def open(self) -> None:
        """Begin with the current segment. Raises Failure where there is no such agent, or no mount."""
        self.close()
        self._fd = self._tree.do(lambda: os.open(self._path, os.O_RDONLY | os.O_CLOEXEC), self._name)
        self._offset, self._rest = 0, b""

    def read(self) -> list[Event]:
        """The events that are new, a piece at a time; none at the end. Raises OSError or TimeoutError."""
        while data := within(PATIENCE, lambda: os.pread(self._fd, CHUNK, self._offset)):
            self._offset += len(data)
            found, end = decode_lines(self._rest + data)
            self._rest = (self._rest + data)[end:]
            new = [event for event in found if event.seq > self.seq]
            if new and self.seq and new[0].seq > self.seq + 1:
                new = [*self._missed(new[0].seq), *new]
            if new:
                self.seq = new[-1].seq
                return new
        return []

    def _missed(self, before: int) -> list[Event]:
        """The events between the last one and this seq, from older segments, as far as those can be read here."""
        journal = self._tree.mount / "log" / "agents" / f"{self._name}.jsonl"

        def look() -> list[Event]:
            firsts = older(journal)
            events: list[Event] = []
            for first, end in zip(firsts, [*firsts[1:], before], strict=True):
                if end > self.seq + 1 and first < before:
                    events += decode_lines(segment_of(journal, first).read_bytes())[0]
            return [event for event in events if self.seq < event.seq < before]

        with contextlib.suppress(OSError, TimeoutError):
            return within(PATIENCE, look)
        return []

    def wait(self) -> None:
        """Return once there may be more. Raises OSError or TimeoutError where the mount is gone."""
        start = time.monotonic()

        def look() -> bool:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            return bool(poll.poll(WAIT * 1000))

        ready = within(WAIT + PATIENCE, look)
        if not (ready and within(PATIENCE, lambda: os.pread(self._fd, 1, self._offset))):
            time.sleep(max(0.0, AGAIN - (time.monotonic() - start)))
            within(PATIENCE, lambda: os.stat(self._path))  # an agent, or a mount, that went away tells nobody


def beginning(events: list[Event], all_: bool) -> list[Event]:
    """Of what was there before: everything, or the turn that still runs, from its prompt on."""
    if all_:
        return events
    for n in range(len(events) - 1, -1, -1):
        if events[n].kind == Kind.TURN_ENDED:
            return []
        if events[n].kind == Kind.PROMPT_GIVEN:
            return events[n:]
    return []


def follow_on(journal: Journal, name: str, all_: bool, say: Callable[[str], None]) -> Iterator[list[Event]]:
    """The events to tell, until the agent is retired. `say` takes what is worth knowing about the watching itself.

    Raises Failure where there is no such agent, or nothing is mounted at the start.
    """
    journal.open()
    there: list[Event] = []
    while found := journal.read():
        there = beginning([*there, *found], all_)
    yield there
    gone, missing = False, 0
    while True:
        try:
            if gone:
                journal.open()
                gone, missing = False, 0
            while found := journal.read():
                yield found
            journal.wait()
        except FileNotFoundError:
            with contextlib.suppress(OSError, TimeoutError):
                yield journal.read()  # what was noted of an agent that is gone can still be read
            gone = True
        except (OSError, TimeoutError):
            if not gone:
                say("the mount is gone; waiting for it")
            gone = True
            time.sleep(AGAIN)
        except Failure as failure:
            missing += failure.code == Exit.NOT_FOUND
            if missing > 1:  # the first time the mount may just have come back
                return say(f"{name} was retired")
            time.sleep(AGAIN)


def _prompt(tree: Tree, name: str, event: Event) -> str:
    """The text of the prompt that an event tells of, from the conversation for people; empty where it is not there."""
    end = event.number("chat_end")
    head = f"--- [{event.number('turn')}] prompt {event.text('id')} ".encode()

    def look() -> bytes:
        with (tree.agent(name) / "chat").open("rb") as file:
            file.seek(max(0, end - SHOWN))
            return file.read(end - max(0, end - SHOWN))

    with contextlib.suppress(OSError, TimeoutError):
        _, found, text = within(PATIENCE, look).rpartition(head)
        return text.partition(b"\n")[2].decode(errors="replace") if found else ""
    return ""


def _answer(tree: Tree, name: str, event: Event) -> str:
    """The answer that a turn ended with, where its CLI tells nothing before."""
    path = tree.agent(name) / "inbox" / event.text("id")

    def look() -> bytes:
        with path.open("rb") as file:
            return file.read(SHOWN)

    with contextlib.suppress(OSError, TimeoutError):
        return within(PATIENCE, look).partition(b"\n\n")[2].decode(errors="replace")
    return ""


def _indented(text: str) -> str:
    return "".join(f"  | {line}\n" for line in visible(text).rstrip("\n").split("\n")) if text.strip() else ""


def _told(tree: Tree, name: str, narrator: Narrator, event: Event) -> str:
    """What is printed for an event, with the bytes that it only names."""
    silent = event.kind == Kind.TURN_ENDED and not narrator.said
    answer = visible(_answer(tree, name, event)) if silent else ""
    if answer and not answer.endswith("\n"):
        answer += "\n"
    told = answer + narrator.tell(event)
    return told + _indented(_prompt(tree, name, event)) if event.kind == Kind.PROMPT_GIVEN else told


@click.command()
@click.argument("name", shell_complete=agent_names)
@click.option("--all", "all_", is_flag=True, help="Begin with all that `events` holds, not with the turn that runs.")
@click.option("--json", "as_json", is_flag=True, help="Pass the events on as they are, JSON Lines.")
@mount_option
def follow(name: str, all_: bool, as_json: bool, mount: Path) -> None:
    """Show what agent NAME says, uses and asks, as it happens, until Ctrl-C."""
    tree = Tree(mount)
    narrator = Narrator(str(tree.agent(name) / "ctl"))
    journal = Journal(tree, name)
    try:
        for events in follow_on(journal, name, all_, lambda text: print(f"zoefs: {text}", file=sys.stderr)):
            for event in events:
                data = event.encode() if as_json else _told(tree, name, narrator, event).encode(errors="replace")
                sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            if events and events[-1].kind == Kind.RETIRED:
                return
    except KeyboardInterrupt:
        return
    except (OSError, TimeoutError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise Failure(Exit.NOT_RUNNING, f"the mount at {mount} does not answer") from None
    finally:
        journal.close()

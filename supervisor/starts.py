"""A CLI begins: what may stand in its way, its session, its keeper; or it is taken over from an earlier supervisor."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from supervisor import process
from supervisor.backends import CODECS, Setup
from supervisor.backends import codec as told
from supervisor.desk import Desk
from supervisor.environment import build, find_binary, named
from supervisor.records import RECORDS, has_record
from supervisor.running import Running
from zoefs.contract.events import Kind
from zoefs.contract.lifecycle import Life
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import AgentName, Reason, Verb
from zoefs.disk.files import read_text, replace, size
from zoefs.disk.lock import try_lock
from zoefs.disk.process import Mark

TOO_LONG = "its command line and environment are too long to be run"


async def adopt(desk: Desk) -> None:
    """Take over what an earlier supervisor started, noted or not."""
    deadline = trio.current_time() + 2.0
    while True:
        alive, mark = process.keeper_lives(desk.home), process.start_mark(desk.home)
        if not alive or (mark is not None and process.is_keeper(desk.home, mark.keeper)):
            break
        if trio.current_time() >= deadline:
            return  # whoever holds the lock has not said who it is: it is looked at again
        await trio.sleep(0.01)
    if mark is not None and mark.inc > desk.fold.inc:
        if desk.fold.life in (Life.STARTING, Life.UP):
            desk.note((Kind.EXITED, {"inc": desk.fold.inc, "next": Life.RESTING}))
        note_spawned(desk, mark.inc, mark.keeper, adopted=True)
    if desk.fold.life in (Life.STARTING, Life.UP):
        keeper = mark.keeper if mark and mark.inc == desk.fold.inc else Mark(0, 0)
        if desk.fold.backend in CODECS:  # what runs was started by the spec of then
            desk.spec = attrs.evolve(desk.spec, backend=desk.fold.backend)
        running = run(desk, desk.fold.inc, keeper, make_codec(desk, desk.fold.inc, "", resume=True), adopted=True)
        if desk.fold.life is Life.STARTING and not running.ended:
            desk.put(running, running.codec.hello())


def run(desk: Desk, inc: int, keeper: Mark, codec: told.Codec, adopted: bool = False) -> Running:
    running = Running(desk.home, inc, keeper, process.open_pidfd(keeper), codec, adopted)
    if adopted:
        running.offset, running.known = desk.fold.turn_raw, size(desk.home.raw(inc))
        running.sent = desk.fold.sent_inc == inc
        running.working, running.torn = True, desk.fold.stdin_open
        if desk.fold.turn_open:
            codec.expect(desk.message_id(desk.fold.given))
    desk.running = running
    if running.pidfd is None:
        running.ended = True
    else:
        desk.hub.nursery.start_soon(until_ended, desk, running, running.pidfd)
    return running


async def until_ended(desk: Desk, running: Running, pidfd: int) -> None:
    if running.pidfd != pidfd:
        return  # it was let go of before this task began
    try:
        await trio.lowlevel.wait_readable(pidfd)
    except trio.ClosedResourceError:
        return
    running.ended = True
    desk.wake()


def cwd_of(desk: Desk) -> Path:
    return Path(desk.spec.cwd) if desk.spec.cwd else desk.home.work


def environment(desk: Desk) -> dict[str, str]:
    return build(desk.spec, desk.hub.env, desk.hub.home, desk.hub.mount, desk.home.name)


def find_obstacle(desk: Desk) -> dict[str, str] | None:
    """Why the CLI cannot be started, as the fields of `failed`; None where it can."""
    if desk.spec_error:
        return {"reason": Reason.CONFIG, "text": desk.spec_error}
    if desk.spec.fork and not desk.fold.standing and not desk.fold.former_session and not fork_of(desk):
        return {"reason": Reason.CONFIG, "text": f"fork: no agent {desk.spec.fork} that has a session"}
    cwd = cwd_of(desk)
    if not cwd.is_dir():
        return {"reason": Reason.CWD_MISSING, "text": f"cwd {cwd} is no directory; make it, then `restart`"}
    try:
        env = environment(desk)
    except Refusal as refusal:
        return {"reason": Reason.CONFIG, "text": refusal.sentence}
    if find_binary(desk.spec, desk.hub.env, env.get("PATH", ""), cwd) is None:
        text = f"no program {named(desk.spec, desk.hub.env)} can be run; mend that or PATH, then `restart`"
        return {"reason": Reason.CONFIG, "text": text}
    if desk.spec.backend in RECORDS and desk.fold.standing == "done" and not may_resume(desk, env):
        return {"reason": Reason.CONTEXT_LOST, "text": no_record(desk)}
    return None


def may_resume(desk: Desk, env: Mapping[str, str]) -> bool:
    """Whether the next CLI is to resume: as the last words of the one before said, else as its records say."""
    return has_record(desk.spec.backend, env, desk.fold.session) if desk.resume is None else desk.resume


def fork_of(desk: Desk) -> str:
    """The session that this agent's own is to begin from a copy of; empty where it is to begin from none."""
    if not desk.spec.fork or desk.fold.former_session:
        return ""
    return read_text(desk.hub.home.agent(AgentName(desk.spec.fork)).session)


def make_codec(desk: Desk, inc: int, binary: str, resume: bool) -> told.Codec:
    """The codec of one incarnation; one that is only adopted needs no `binary`."""
    spec = desk.spec
    setup = Setup(
        name=desk.home.name,
        session=desk.fold.session,
        spec=spec,
        binary=binary,
        inc=inc,
        resume=resume,
        fork=fork_of(desk),
        lasting=desk.fold.standing == "done" or (desk.backend.looks_up and bool(desk.fold.standing)),
        continuing=desk.fold.turn_open,
        turn=desk.fold.turn,
        cwd=str(cwd_of(desk)),
        model=desk.fold.model,
        usd=desk.fold.total_usd,
        words=desk.fold.capabilities if desk.fold.inc == inc else (),
        up=desk.fold.life is Life.UP and desk.fold.inc == inc,
    )
    return CODECS[spec.backend](setup)


async def spawn(desk: Desk) -> None:
    """Start the CLI, where nothing stands in the way. A stream CLI takes one of the slots until it is ready."""
    if (obstacle := find_obstacle(desk)) is not None:
        give_up(desk, obstacle["reason"], obstacle["text"])
        return
    begun = False
    if desk.backend.transport == "stream":
        if not desk.hub.may_start(desk.home.name):
            return  # somebody took the place since it was looked at
        desk.hub.begin(desk.home.name)
    try:
        begun = await _spawn(desk)
    finally:
        if not begun:
            desk.hub.started(desk.home.name)


async def _spawn(desk: Desk) -> bool:
    """Start the CLI under a keeper that holds the agent's lock; whether it began. The session id is stored first."""
    lock = try_lock(desk.home.lock)
    if lock is None:
        await adopt(desk)  # a keeper that nobody noted yet, or somebody who retires the agent
        await trio.sleep(0.05)
        return False
    mark = process.start_mark(desk.home)
    if mark is not None and mark.inc > desk.fold.inc:
        os.close(lock)
        await adopt(desk)  # it lived and died unseen
        return False
    try:
        if os.fstat(lock).st_ino != os.stat(desk.home.lock).st_ino or read_text(desk.home.born) != desk.born:
            return False
        if not desk.fold.session and desk.backend.chooses:
            session = str(uuid.uuid4())
            await trio.to_thread.run_sync(replace, desk.home.session, session.encode() + b"\n")
            await desk.note_lasting((Kind.SESSION, {"id": session, "how": "chosen"}))
        turn = desk.backend.transport == "turn"
        inc = desk.fold.given_inc if turn else desk.fold.inc + 1
        env = environment(desk)
        resume = may_resume(desk, env)
        desk.resume = None
        desk.running_resumed = resume
        binary = find_binary(desk.spec, desk.hub.env, env.get("PATH", ""), cwd_of(desk)) or desk.spec.backend
        codec = make_codec(desk, inc, binary, resume)
        if desk.fold.turn_open and desk.backend.looks_up:
            codec.expect(desk.message_id(desk.fold.given))
        env |= codec.environment()
        prompt = desk.home.taken / desk.fold.given_order if turn else None
        boot = desk.hub.boot
        keeper = process.start(desk.home, inc, lock, boot, cwd_of(desk), codec.argv(), env, prompt, desk.hub.files)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        give_up(desk, Reason.CONFIG, TOO_LONG)
        return False
    finally:
        os.close(lock)
    note_spawned(desk, inc, keeper, adopted=False)
    running = run(desk, inc, keeper, codec)
    running.working = turn or desk.fold.turn_open
    if not turn:
        desk.put(running, codec.hello())
    return True


def give_up(desk: Desk, reason: str, text: str) -> None:
    """It cannot be started: that is noted in one write with the verbs that wanted it."""
    desk.wanted = False
    desk.note((Kind.FAILED, {"reason": reason, "text": text}), *desk.settled(desk.pending, ok=False, text=text))


def no_record(desk: Desk) -> str:
    return (
        f"{desk.spec.backend} has no record of session {desk.fold.session} any more; `restart` begins a new one, and "
        "this one's id is kept in stat"
    )


def note_spawned(desk: Desk, inc: int, keeper: Mark, adopted: bool) -> None:
    fields = {
        "inc": inc,
        "pid": keeper.pid,
        "backend": desk.spec.backend,
        "ready": desk.backend.transport == "turn",
    }
    settled = desk.settled([p for p in desk.pending if p.command.verb in (Verb.START, Verb.RESTART)])
    desk.wanted = False
    desk.note((Kind.SPAWNED, {**fields, "adopted": True} if adopted else fields), *settled)

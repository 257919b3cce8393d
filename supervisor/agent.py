"""One agent, kept: look at its directory, decide, act, note. Crash-only: `keep` begins from disk every time.

Order of notes. What must not happen twice is noted, and lasts, before it is done (`prompt-given`, `session`). What
an act is known by afterwards is noted with its consequences in one write (`turn-ended` with the verbs it settles),
so no crash can leave one without the other. Everything a reader may want of a turn is on disk before `turn-ended`.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import attrs
import trio

from supervisor import process
from supervisor.answers import add_to_chat, as_file, own_answer, write_answer
from supervisor.backends import CODECS, Setup
from supervisor.backends import codec as told
from supervisor.decide import Act, Do, Give, Line, NoteGone, Obey, TakeOut, View, decide, wake_at
from supervisor.environment import build, find_binary
from supervisor.records import has_record
from supervisor.restarts import Next, after_death, in_words
from supervisor.running import Running
from zoefs.contract.backends import BACKENDS, Backend
from zoefs.contract.events import Event, Kind, seconds
from zoefs.contract.home import PROMPTS, AgentHome, Order, OrderKind, parse_order
from zoefs.contract.lifecycle import Fold, Life, fold
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import DEFAULT_BACKEND, Spec, SpecError, effective
from zoefs.contract.verbs import parse_ctl
from zoefs.contract.words import How, OnLost, Reason, Verb
from zoefs.disk.files import names, read, read_text, replace, size
from zoefs.disk.journal import Tail, Writer
from zoefs.disk.lock import try_lock
from zoefs.disk.process import Mark, lives

if TYPE_CHECKING:
    from supervisor.keep import Hub

PIPE_BUF = 4096
HANDSHAKE_SECONDS = 60.0
EOF_GRACE = 2.0
TERM_GRACE = 3.0
INTERRUPT_GRACE = 1.0
INTERRUPT_ANSWER = 5.0
KILL_AGAIN = 0.2
KEPT_ORDERS = 1000

Note = tuple[str, Mapping[str, Any]]


class Gone(Exception):
    """The agent's directory was retired."""


@attrs.define
class Ending:
    """An ending under way: what for, which step is next, and when."""

    why: str
    steps: list[str]
    deadline: float


class Agent:
    """See module. `home` is its directory, `hub` what all agents share."""

    def __init__(self, home: AgentHome, hub: Hub) -> None:
        self.home = home
        self._hub = hub
        self._woken = trio.Event()
        self.running: Running | None = None
        self._journal: Writer | None = None
        self._fold = Fold()
        self._born = ""
        self._ending: Ending | None = None
        self._pending: list[Line] = []
        self._wanted = False
        self._resume: bool | None = None
        self._spec_text = b""
        self._spec_error = ""
        self._spec = Spec(backend=DEFAULT_BACKEND)
        self._ctl: list[Order] = []

    def wake(self) -> None:
        """Have the agent look again."""
        self._woken.set()

    def forget(self) -> None:
        """Let go of everything in memory; the processes go on."""
        if self.running is not None:
            self.running.close()
            self.running = None
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._ending, self._pending, self._wanted = None, [], False

    async def keep(self) -> None:
        """Keep the agent until it is retired (raises Gone). Any other error: begin again from disk."""
        await self._load()
        while True:
            self._woken = trio.Event()
            view = await self._look()
            act = decide(view)
            if act is not None:
                await self._act(act)
                continue
            at = wake_at(view)
            with trio.move_on_after(max(0.0, at - time.time()) if at else float("inf")):
                await self._woken.wait()

    # -- look ---------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        self._born = read_text(self.home.born)
        if not self._born:
            raise Gone
        events = await trio.to_thread.run_sync(Tail(self._hub.home.journal(self.home.name)).read)
        self._fold = fold(events)
        self._journal = Writer(self._hub.home.journal(self.home.name), self._fold.seq)
        if self._fold.born != self._born:
            self._note((Kind.CREATED, {"name": self.home.name, "born": self._born}))
        self._read_spec()
        taken = self._orders_in(self.home.taken)
        self._ctl = [o for o in taken if o.kind is OrderKind.CTL]
        for order in taken:
            if order.kind in PROMPTS and order.id not in self._fold.ids:
                os.rename(self.home.taken / order.name, self.home.new / order.name)  # claimed, never noted: not given
        await self._adopt()

    async def _adopt(self) -> None:
        """Take over what an earlier supervisor started, noted or not."""
        alive = process.keeper_lives(self.home)
        mark = process.start_mark(self.home)
        with trio.move_on_after(2.0):
            while alive and (mark is None or not lives(mark.keeper)):
                await trio.sleep(0.01)
                alive, mark = process.keeper_lives(self.home), process.start_mark(self.home)
        if mark is not None and mark.inc > self._fold.inc:
            if self._fold.life in (Life.STARTING, Life.UP):
                self._note((Kind.EXITED, {"inc": self._fold.inc, "next": Life.RESTING}))
            self._note_spawned(mark.inc, mark.keeper, adopted=True)
        if self._fold.life in (Life.STARTING, Life.UP):
            keeper = mark.keeper if mark and mark.inc == self._fold.inc else Mark(0, 0)
            running = self._run(self._fold.inc, keeper, self._codec(resume=True), adopted=True)
            if self._fold.life is Life.STARTING and not running.ended:
                running.put(running.codec.hello())

    def _run(self, inc: int, keeper: Mark, codec: told.Codec, adopted: bool = False) -> Running:
        running = Running(self.home, inc, keeper, process.open_pidfd(keeper), codec, adopted)
        if adopted:
            running.offset = self._fold.turn_raw
            running.sent = self._fold.sent_inc == inc
            running.working = True
            if self._fold.turn_open:
                codec.expect(self._message_id(self._fold.given))
        self.running = running
        if running.pidfd is None:
            running.ended = True
        else:
            self._hub.nursery.start_soon(self._until_ended, running, running.pidfd)
        return running

    async def _until_ended(self, running: Running, pidfd: int) -> None:
        try:
            await trio.lowlevel.wait_readable(pidfd)
        except trio.ClosedResourceError:
            return
        running.ended = True
        self.wake()

    async def _until_writable(self, running: Running) -> None:
        await running.writable()
        self.wake()

    def _read_spec(self) -> None:
        text = (read(self.home.spec) or b"") + b"\0" + (read(self._hub.home.config) or b"")
        if text == self._spec_text:
            return
        self._spec_text = text
        own, _, config = text.partition(b"\0")
        try:
            self._spec = effective(own.decode(errors="replace"), config.decode(errors="replace"))
            self._spec_error = ""
        except SpecError as error:
            self._spec = Spec(backend=self._fold.backend or DEFAULT_BACKEND)
            self._spec_error = f"spec line {error.line}: {error.sentence}" if error.line else f"spec: {error.sentence}"

    @property
    def _backend(self) -> Backend:
        return BACKENDS[self._spec.backend]

    @property
    def _on_lost(self) -> OnLost:
        return OnLost(self._spec.on_lost) if self._spec.on_lost else self._backend.on_lost

    async def _look(self) -> View:
        if read_text(self.home.born) != self._born:
            self._note((Kind.RETIRED, {"name": self.home.name}))
            raise Gone
        if self._fold.life not in (Life.STARTING, Life.UP):
            self._read_spec()
        if self.running is not None:
            await self._drain(self.running)
            self._pump(self.running)
        orders = [order for name in names(self.home.new) if (order := parse_order(name)) is not None]
        f, running = self._fold, self.running
        prompts = tuple(o for o in orders if o.kind in PROMPTS)
        deadline = 0.0
        if f.life is Life.STARTING:
            deadline = seconds(f.spawned_t) + HANDSHAKE_SECONDS
        elif f.turn_open and self._spec.turn_timeout:
            deadline = seconds(f.given_t) + self._spec.turn_timeout
        if running is not None and running.interrupting:
            deadline = running.interrupting
        return View(
            life=f.life,
            transport=self._backend.transport,
            on_lost=self._on_lost,
            now=time.time(),
            turn_open=f.turn_open,
            alive=running is not None and not running.ended,
            started=0 < f.given_inc <= f.inc,
            same_boot=f.given_boot == self._hub.boot,
            sent=running is not None and running.sent,
            stdin_torn=running is not None and running.adopted and f.stdin_open,
            ending=self._ending.deadline if self._ending else 0.0,
            deadline=deadline,
            until=f.until,
            slot=self._backend.transport == "turn" or self._hub.may_start(self.home.name),
            rest=self._hub.resting,
            wanted=self._wanted,
            line=self._next_line(orders),
            prompts=prompts,
            outs=tuple(o for o in orders if o.kind in (OrderKind.OUT, OrderKind.ANSWER)),
            cancelled=self._orders_in(self.home.cancelled),
            cut=self._orders_in(self.home.cut),
        )

    def _orders_in(self, path: Path) -> tuple[Order, ...]:
        return tuple(order for name in names(path) if (order := parse_order(name)) is not None)

    def _next_line(self, new: list[Order]) -> Line | None:
        """The oldest line of `ctl` that is neither done nor under way."""
        for order in sorted({*self._ctl, *(o for o in new if o.kind is OrderKind.CTL)}):
            if order.name in self._fold.orders_done:
                (self.home.taken / order.name).unlink(missing_ok=True)
                self._ctl = [other for other in self._ctl if other != order]
                continue
            data = read(self.home.new / order.name)
            data = read(self.home.taken / order.name) if data is None else data
            if data is None:
                continue
            commands = parse_ctl(data)
            n = self._fold.lines_done.get(order.name, 0)
            if n < len(commands) and not any(line.order == order for line in self._pending):
                return Line(order, n, len(commands), commands[n])
        return None

    async def _drain(self, running: Running) -> None:
        """Decode what the CLI wrote; note it, and end the turn where it ended."""
        notes: list[Note] = []
        seen = self._fold.raw_end if self._fold.raw_inc == running.inc else 0
        if self._backend.transport == "turn":
            return
        for line, end in running.lines():
            for event in running.codec.decode(line):
                if end <= seen:
                    continue
                if isinstance(event, told.TurnEnd):
                    self._note(*notes)
                    notes = []
                    await self._turn_told(running, event, end)
                elif (note := self._as_note(event, running, end)) is not None:
                    notes.append(note)
        self._note(*notes)
        if reply := running.codec.take():
            running.put(reply)

    def _as_note(self, event: told.Decoded, running: Running, end: int) -> Note | None:
        base: dict[str, Any] = {"inc": running.inc, "raw_end": end}
        turn = {**base, "turn": self._fold.turn}
        match event:
            case told.Ready(version=version):
                self._hub.started(self.home.name)
                return Kind.READY, {**base, "version": version}
            case told.SessionChanged(session=session):
                if session == self._fold.session:
                    return None
                replace(self.home.session, session.encode() + b"\n")
                return Kind.SESSION, {**base, "id": session, "old": self._fold.session, "how": "reported"}
            case told.Accepted(message=message):
                known = self._fold.turn_open and message == self._message_id(self._fold.given)
                return (Kind.PROMPT_ACCEPTED, {**turn, "id": self._fold.given}) if known else None
            case told.Text(text=text):
                return Kind.TEXT, {**turn, "text": text}
            case told.Tool(id=id, name=name, input=input):
                return Kind.TOOL, {**turn, "tool_id": id, "tool": name, "input": input}
            case told.ToolResult(id=id, ok=ok, text=text):
                return Kind.TOOL_RESULT, {**turn, "tool_id": id, "ok": ok, "text": text[:4000]}
            case told.Asked(ask=ask, tool=tool, input=input):
                return Kind.ASKED, {**turn, "ask": ask, "tool": tool, "input": input}
            case told.AskGone(ask=ask):
                return Kind.ASK_GONE, {**turn, "ask": ask}
            case told.Retry(status=status, attempt=attempt, delay_ms=delay):
                return Kind.RETRY, {**turn, "status": status, "attempt": attempt, "delay_ms": delay}
            case told.Unreadable(line=text):
                return Kind.NOTE, {**base, "text": f"unreadable line: {text}"}
            case told.TurnEnd():
                raise AssertionError("a turn end is no plain note")
            case _:
                assert_never(event)

    # -- act ----------------------------------------------------------------------------------------------------

    async def _act(self, act: Act) -> None:
        match act:
            case Give(order=order):
                await self._give(order)
            case Obey(line=line):
                await self._obey(line)
            case TakeOut(order=order):
                self._take_out(order)
            case NoteGone(order=order, cut=cut):
                self._note_gone(order, cut)
            case Do.BURY:
                await self._bury()
            case Do.ESCALATE:
                self._escalate()
            case Do.REST:
                self._begin_ending("rest")
            case Do.REPLACE:
                self._begin_ending("replace")
            case Do.SPAWN:
                await self._spawn()
            case Do.WRITE:
                self._write_prompt()
            case Do.TIME_OUT:
                self._time_out()
            case Do.LOSE:
                await self._end_turn(How.LOST, self._partial(), "it was cut and cannot be continued exactly once")
            case _:
                assert_never(act)

    def _note(self, *notes: Note, sync: bool = False) -> list[Event]:
        """Write to the journal and take the same events into the fold."""
        if not notes:
            return []
        assert self._journal is not None
        events = self._journal.append(*notes, sync=sync)
        for event in events:
            self._fold.feed(event)
        return events

    async def _note_lasting(self, *notes: Note, before: Callable[[], None] | None = None) -> None:
        """As `_note`, in a thread, after `before` and with an fsync: a slow disk delays this agent only."""
        journal = self._journal
        assert journal is not None

        def work() -> list[Event]:
            if before is not None:
                before()
            return journal.append(*notes, sync=True)

        for event in await trio.to_thread.run_sync(work):
            self._fold.feed(event)

    def _message_id(self, order_id: str) -> str:
        """The uuid that a prompt has for the CLI: always the same for the same prompt."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"zoefs:{self._born}:{order_id}"))

    def _claim(self, order: Order) -> bool:
        """One rename decides between us and whoever cancels."""
        try:
            os.rename(self.home.new / order.name, self.home.taken / order.name)
        except FileNotFoundError:
            return (self.home.taken / order.name).exists()
        return True

    def _note_gone(self, order: Order, cut: bool) -> None:
        if cut:
            text = f"prompt {order.id} was cut off when the mount died, and was not sent"
            self._note((Kind.PROMPT_CUT, {"id": order.id, "text": text, "note": "cut"}))
            os.rename(self.home.cut / order.name, self.home.taken / order.name)
        else:
            self._note((Kind.PROMPT_CANCELLED, {"id": order.id}))
            (self.home.cancelled / order.name).unlink(missing_ok=True)

    def _take_out(self, order: Order) -> None:
        """Note it first: done again after a crash, it says the same."""
        by = "agent" if order.kind is OrderKind.ANSWER else "client"
        file = f"orders/taken/{order.name}"
        self._note((Kind.OUT_WRITTEN, {"order": order.name, "by": by, "turn": self._fold.turn, "file": file}))
        self._claim(order)

    async def _give(self, order: Order) -> None:
        """Claim a prompt, note it for good, and send it on its way."""
        stream = self._backend.transport == "stream"
        if not stream and (obstacle := self._obstacle()) is not None:
            self._note((Kind.FAILED, obstacle))
            return
        if not self._claim(order) or order.id in self._fold.ids:
            return
        turn, inc = self._fold.turn + 1, self._fold.inc if stream else self._fold.inc + 1
        path = self.home.taken / order.name
        fields: dict[str, Any] = {
            "id": order.id,
            "turn": turn,
            "inc": inc,
            "order": order.name,
            "bytes": size(path),
            "boot": self._hub.boot,
        }
        if order.kind is OrderKind.RECOVERED:
            fields["note"] = "recovered"
        await self._note_lasting((Kind.PROMPT_GIVEN, fields))
        if stream:
            self._write_prompt()
        else:
            await self._spawn()
        self._show(f"[{turn}] prompt {order.id} {self._fold.given_t}", read(path) or b"")

    def _show(self, heading: str, body: bytes) -> None:
        end = add_to_chat(self.home, self._fold.chat_end, heading, body)
        self._note((Kind.NOTE, {"chat_end": end}))

    def _write_prompt(self) -> None:
        """Put the open turn's prompt on the CLI's stdin; a long line is noted begun and done."""
        running = self.running
        assert running is not None
        text = (read(self.home.taken / self._fold.given_order) or b"").decode(errors="replace")
        self._put(running, running.codec.prompt(self._message_id(self._fold.given), text))
        running.sent = running.working = True
        if running.drained:
            self._note((Kind.PROMPT_SENT, {"id": self._fold.given, "inc": running.inc}))

    def _put(self, running: Running, data: bytes) -> None:
        if len(data) > PIPE_BUF:
            self._note((Kind.STDIN_BEGUN, {"inc": running.inc, "bytes": len(data)}), sync=True)
        running.put(data)
        self._pump(running)

    def _pump(self, running: Running) -> None:
        before = running.drained
        running.pump()
        if not running.drained:
            self._hub.nursery.start_soon(self._until_writable, running)
        elif not before and self._fold.stdin_open:
            notes: list[Note] = [(Kind.STDIN_DONE, {"inc": running.inc})]
            if self._fold.turn_open and running.sent and self._fold.sent_inc != running.inc:
                notes.append((Kind.PROMPT_SENT, {"id": self._fold.given, "inc": running.inc}))
            self._note(*notes)

    # -- start --------------------------------------------------------------------------------------------------

    def _cwd(self) -> Path:
        return Path(self._spec.cwd) if self._spec.cwd else self.home.work

    def _environment(self) -> dict[str, str]:
        return build(self._spec, self._hub.env, self._hub.home, self._hub.mount, self.home.name)

    def _obstacle(self) -> dict[str, str] | None:
        """Why the CLI cannot be started, as the fields of `failed`; None where it can."""
        if self._spec_error:
            return {"reason": Reason.CONFIG, "text": self._spec_error}
        cwd = self._cwd()
        if not cwd.is_dir():
            return {"reason": Reason.CWD_MISSING, "text": f"cwd {cwd} is no directory; make it, then `restart`"}
        try:
            env = self._environment()
        except Refusal as refusal:
            return {"reason": Reason.CONFIG, "text": refusal.sentence}
        if find_binary(self._spec, self._hub.env, env.get("PATH", ""), cwd) is None:
            wanted = self._spec.argv[0] if self._spec.argv else self._spec.backend
            text = f"no program {wanted!r} can be run; mend the spec or PATH, then `restart`"
            return {"reason": Reason.CONFIG, "text": text}
        return None

    def _codec(self, resume: bool) -> told.Codec:
        env = self._environment() if not self._spec_error else {}
        binary = find_binary(self._spec, self._hub.env, env.get("PATH", ""), self._cwd()) or self._spec.backend
        spec = self._spec
        setup = Setup(
            name=self.home.name,
            session=self._fold.session,
            spec=spec,
            binary=binary,
            resume=resume,
            continuing=self._fold.turn_open and self._on_lost is OnLost.CONTINUE,
            turn=self._fold.turn,
        )
        return CODECS[spec.backend](setup)

    async def _spawn(self) -> None:
        """Start the CLI under a keeper that holds the agent's lock. The session id is stored first."""
        if (obstacle := self._obstacle()) is not None:
            self._wanted = False
            self._note((Kind.FAILED, obstacle), *self._settled(self._pending, ok=False, text=obstacle["text"]))
            return
        lock = try_lock(self.home.lock)
        if lock is None:
            await trio.sleep(0.05)
            return
        try:
            if os.fstat(lock).st_ino != os.stat(self.home.lock).st_ino or read_text(self.home.born) != self._born:
                return
            if not self._fold.session:
                session = str(uuid.uuid4())
                await trio.to_thread.run_sync(replace, self.home.session, session.encode() + b"\n")
                await self._note_lasting((Kind.SESSION, {"id": session, "how": "chosen"}))
            turn = self._backend.transport == "turn"
            inc = self._fold.given_inc if turn else self._fold.inc + 1
            env = self._environment()
            resume = self._resume
            if resume is None:
                resume = has_record(self._spec.backend, env, self._fold.session)
            self._resume = None
            codec = self._codec(resume)
            env |= codec.environment()
            prompt = self.home.taken / self._fold.given_order if turn else None
            boot = self._hub.boot
            keeper = process.start(self.home, inc, lock, boot, self._cwd(), codec.argv(), env, prompt)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            self._note((Kind.FAILED, {"reason": Reason.CONFIG, "text": "its command line is too long to be run"}))
            return
        finally:
            os.close(lock)
        self._note_spawned(inc, keeper, adopted=False)
        running = self._run(inc, keeper, codec)
        running.working = turn or self._fold.turn_open
        if not turn:
            self._hub.starting.add(self.home.name)
            self._put(running, codec.hello())

    def _note_spawned(self, inc: int, keeper: Mark, adopted: bool) -> None:
        fields = {
            "inc": inc,
            "pid": keeper.pid,
            "backend": self._spec.backend,
            "ready": self._backend.transport == "turn",
        }
        settled = self._settled([p for p in self._pending if p.command.verb in (Verb.START, Verb.RESTART)])
        self._wanted = False
        self._note((Kind.SPAWNED, {**fields, "adopted": True} if adopted else fields), *settled)

    # -- verbs --------------------------------------------------------------------------------------------------

    def _settled(self, lines: list[Line], ok: bool = True, text: str = "") -> list[Note]:
        """The notes that settle these lines of `ctl`; they are under way no longer."""
        notes: list[Note] = []
        for line in list(lines):
            fields: dict[str, Any] = {"ctl": line.order.name, "verb": line.command.verb, "ok": ok}
            fields |= {"key": line.command.key} if line.command.key else {}
            fields |= {"text": text} if text else {}
            fields |= {"order": line.order.name} if line.n + 1 == line.of else {}
            notes.append((Kind.VERB_DONE, fields))
            if line in self._pending:
                self._pending.remove(line)
        return notes

    async def _obey(self, line: Line) -> None:
        self._claim(line.order)
        if line.order not in self._ctl:
            self._ctl.append(line.order)
        verb = line.command.verb
        match verb:
            case Verb.START:
                self._start(line)
            case Verb.STOP | Verb.KILL | Verb.RESTART:
                await self._stop(line)
            case Verb.INTERRUPT:
                await self._interrupt(line)
            case Verb.ALLOW | Verb.DENY:
                self._answer(line)
            case Verb.ALLOW_ALWAYS | Verb.STEER | Verb.COMPACT | Verb.RESET_BUDGET:
                self._note(*self._settled([line], ok=False, text=f"{verb}: a {self._spec.backend} agent cannot"))
            case _:
                assert_never(verb)

    def _start(self, line: Line) -> None:
        if self._fold.life in (Life.STARTING, Life.UP):
            self._note(*self._settled([line]))
            return
        notes: list[Note] = [] if self._fold.life is Life.RESTING else [(Kind.STARTED, {})]
        if self._backend.transport == "stream":
            self._wanted = True
            self._pending.append(line)
            self._note(*notes)
        else:
            self._note(*notes, *self._settled([line]))

    async def _stop(self, line: Line) -> None:
        verb = line.command.verb
        if self.running is not None and not self.running.ended:
            self._pending.append(line)
            if self._ending is not None:
                self._ending.why = verb
                if verb is Verb.KILL:
                    self._ending.steps, self._ending.deadline = ["kill"], time.time()
            else:
                self._begin_ending(verb)
            return
        if self._fold.turn_open:
            await self._end_turn(How.INTERRUPTED, self._partial(), f"{verb} by hand")
        if verb is Verb.RESTART:
            notes: list[Note] = [(Kind.STARTED, {"forget": True})]
            if self._backend.transport == "stream":
                self._wanted = True
                self._pending.append(line)
                self._note(*notes)
            else:
                self._note(*notes, *self._settled([line]))
        else:
            overtaken = self._settled(list(self._pending), ok=False, text=f"overtaken by {verb}")
            self._wanted = False
            self._note((Kind.STOPPED, {"by": verb}), *overtaken, *self._settled([line]))

    async def _interrupt(self, line: Line) -> None:
        f, running = self._fold, self.running
        if running is not None and not running.ended and running.working and f.turn_open:
            self._pending.append(line)
            if self._backend.transport == "turn":
                self._begin_ending("interrupt")
            else:
                running.interrupting = time.time() + INTERRUPT_ANSWER
                self._put(running, running.codec.interrupt())
            return
        if f.turn_open:
            await self._end_turn(How.INTERRUPTED, self._partial(), "interrupted", also=[line])
            return
        earlier = [o for o in self._orders_in(self.home.new) if o.kind in PROMPTS and o.stamp < line.order.stamp]
        if earlier and self._claim(earlier[0]):
            order, turn = earlier[0], f.turn + 1
            given = {"id": order.id, "turn": turn, "order": order.name, "withheld": True}
            self._note((Kind.PROMPT_GIVEN, given))
            await self._end_turn(How.INTERRUPTED, b"", "interrupted before it was given", also=[line])
            return
        self._note(*self._settled([line], text="nothing to interrupt"))

    def _answer(self, line: Line) -> None:
        ask_id, why = [*line.command.argument.split(None, 1), ""][:2]
        ask = self._fold.asks.get(ask_id)
        if ask is None or self.running is None:
            self._note(*self._settled([line], ok=False, text=f"no ask {ask_id} is pending any more"))
            return
        allow = line.command.verb is Verb.ALLOW
        self._put(self.running, self.running.codec.answer(ask_id, ask.input, allow, why))
        decision = "allow" if allow else "deny"
        fields = {"ask": ask_id, "decision": decision, "why": why, "by": line.command.key or "client"}
        self._note((Kind.ANSWERED, fields), *self._settled([line]))

    # -- endings ------------------------------------------------------------------------------------------------

    def _begin_ending(self, why: str) -> None:
        steps = {
            "kill": ["kill"],
            "replace": ["kill"],
            "interrupt": ["term", "kill"],
        }.get(why, ["eof", "term", "kill"] if self._backend.transport == "stream" else ["term", "kill"])
        self._ending = Ending(why, list(steps), 0.0)
        self._escalate()

    def _escalate(self) -> None:
        ending, running = self._ending, self.running
        assert ending is not None
        assert running is not None
        step = ending.steps[0]
        if len(ending.steps) > 1:
            del ending.steps[0]
        match step:
            case "eof":
                running.close_stdin()
                if running.pidfd is not None:
                    process.send(running.pidfd, signal.SIGUSR1)
                grace = EOF_GRACE
            case "term":
                process.signal_cli(self.home, running.keeper, signal.SIGTERM)
                grace = INTERRUPT_GRACE if ending.why == "interrupt" else TERM_GRACE
            case _:
                process.kill_tree(self.home, running.keeper, running.adopted)
                grace = KILL_AGAIN
        ending.deadline = time.time() + grace

    def _time_out(self) -> None:
        """A handshake or an interrupt that got no answer, or a turn beyond its time."""
        running = self.running
        assert running is not None
        if self._fold.life is Life.STARTING:
            self._begin_ending("replace")
        elif running.interrupting or self._backend.transport == "turn":
            running.timed_out = running.timed_out or not running.interrupting
            running.interrupting = 0.0
            self._begin_ending("interrupt")
        else:
            running.timed_out = True
            running.interrupting = time.time() + INTERRUPT_ANSWER
            self._put(running, running.codec.interrupt())

    async def _bury(self) -> None:
        """Its process is dead: end what it started, hear it out, and note death and turn in one write."""
        running = self.running
        assert running is not None
        with trio.move_on_after(10.0):
            while not process.kill_tree(self.home, running.keeper, running.adopted):
                await trio.sleep(0.005)
        await self._drain(running)
        rc = process.exit_code(self.home, running.inc)
        last_words = _tail(self.home.err(running.inc))
        death = running.codec.death(rc if rc is not None else -1, last_words)
        if death.resume is not None:
            self._resume = death.resume
        why = self._ending.why if self._ending else ""
        after = self._after(why, rc, last_words, death)
        notes: list[Note] = []
        also: list[Line] = []
        exited: dict[str, Any] = {"inc": running.inc, "rc": rc, "next": after.life, "reason": after.reason}
        exited |= {"signal": rc - 128} if rc is not None and rc > 128 else {}
        exited |= {"until": after.until, "died": time.time()} if after.life is Life.BACKOFF else {}
        exited |= {"text": after.text} if after.text else {}
        exited |= {"asked": why} if why else {}
        notes.append((Kind.EXITED, exited))
        if after.life is Life.STOPPED:
            also = list(self._pending)
        elif why == Verb.RESTART:
            notes.append((Kind.STARTED, {"forget": True}))
            if self._backend.transport == "stream":
                self._wanted = True
            else:
                also = list(self._pending)
        elif why == "interrupt" or not self._fold.turn_open:
            also = [line for line in self._pending if line.command.verb is Verb.INTERRUPT]
        how = self._fate_of_cut_turn(why, rc, after)
        self._hub.started(self.home.name)
        if self._fold.turn_open and how is not None:
            reason = self._why_ended(how, why, rc, last_words, after)
            await self._end_turn(how, self._partial(), reason, also, notes)
        else:
            if self._fold.turn_open:
                partial = self._partial()
                await trio.to_thread.run_sync(write_answer, self.home, self._fold.turn, partial)
                notes.insert(0, (Kind.TURN_LOST, {"turn": self._fold.turn, "inc": running.inc}))
            self._note(*notes, *self._settled(also), sync=True)
        self._ending = None
        running.close()
        self.running = None
        self.home.stdin.unlink(missing_ok=True)

    def _after(self, why: str, rc: int | None, last_words: str, death: told.Death) -> Next:
        """Where the agent stands after this exit."""
        if why in (Verb.STOP, Verb.KILL):
            return Next(Life.STOPPED)
        if death.reason is not None:
            return Next(Life.FAILED, reason=death.reason, text=death.text)
        if why in ("rest", Verb.RESTART, "interrupt") or self._backend.transport == "turn":
            return Next(Life.RESTING)
        if rc == 0 and not self._fold.turn_open and self._fold.life is Life.UP:
            return Next(Life.RESTING)
        now = time.time()
        if death.resume is not None or why == "replace":
            return Next(Life.BACKOFF, until=now, text="started anew")
        lived = now - seconds(self._fold.spawned_t)
        what = in_words(rc)
        if line := _last_line(last_words):
            what = f"{what} ({line})"
        return after_death(self._spec.restart, self.home.name, self._fold.deaths, lived, now, what)

    def _fate_of_cut_turn(self, why: str, rc: int | None, after: Next) -> How | None:
        """How the open turn ends with its process; None where the next process goes on with it."""
        if why in (Verb.STOP, Verb.KILL, Verb.RESTART, "interrupt"):
            return How.INTERRUPTED
        if self._backend.transport == "turn":
            if why or rc is None or rc > 128:
                return How.LOST
            return How.DONE if rc == 0 else How.FAILED
        if self._on_lost is OnLost.CONTINUE and after.life in (Life.BACKOFF, Life.RESTING):
            return None
        return How.LOST

    def _why_ended(self, how: How, why: str, rc: int | None, last_words: str, after: Next) -> str:
        if how is How.DONE:
            return ""
        if self.running is not None and self.running.timed_out:
            return f"turn {self._fold.turn}: took longer than turn_timeout"
        if why:
            return f"turn {self._fold.turn}: ended by {'zoefs down' if why == 'rest' else why}"
        line = _last_line(last_words)
        return f"turn {self._fold.turn}: the CLI {in_words(rc)}{': ' + line if line else ''}"

    # -- turn ends ----------------------------------------------------------------------------------------------

    def _partial(self) -> bytes:
        """What the open turn has said so far: stdout of a turn process, else what was decoded."""
        if self._backend.transport == "turn":
            inc = self._fold.given_inc
            return (read(self.home.raw(inc)) or b"") if inc and inc <= self._fold.inc else b""
        if self.running is not None:
            return as_file(self.running.codec.partial())
        return read(self.home.turn(self._fold.turn)) or b""

    async def _turn_told(self, running: Running, end: told.TurnEnd, raw_end: int) -> None:
        if not self._fold.turn_open:
            self._note((Kind.NOTE, {"inc": running.inc, "raw_end": raw_end, "text": "a result without a turn"}))
            return
        if end.text is None:
            data = read(self.home.turn(self._fold.turn)) or b""
        else:
            data = as_file(end.text)
        running.interrupting, running.working, running.sent = 0.0, False, False
        also = [line for line in self._pending if line.command.verb is Verb.INTERRUPT]
        spent = {"cost_usd": end.cost_usd, "tokens_in": end.tokens_in, "tokens_out": end.tokens_out}
        fields = {"inc": running.inc, "raw_end": raw_end, **spent}
        said = "took longer than turn_timeout" if running.timed_out else end.reason
        reason = f"turn {self._fold.turn}: {said}" if said else ""
        running.timed_out = False
        await self._end_turn(end.how, data, reason, also, fields=fields)

    async def _end_turn(
        self,
        how: How,
        answer: bytes,
        reason: str,
        also: list[Line] | None = None,
        then: list[Note] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """End the open turn: answer, conversation, then one write with the end, what follows, and verbs settled."""
        for order in self._orders_in(self.home.new):
            if order.kind in (OrderKind.OUT, OrderKind.ANSWER):
                self._take_out(order)
        turn, home, end = self._fold.turn, self.home, self._fold.chat_end
        own = own_answer(home, self._fold.own_answer)
        told_how = f"{how}: {reason}" if reason else str(how)
        notes: dict[str, Any] = {"turn": turn, "id": self._fold.given, "how": how, "bytes": len(own or answer)}
        notes |= {"text": reason} if reason else {}
        notes |= dict(fields or {})

        def before() -> None:
            write_answer(home, turn, answer if own is None else own)
            closing = answer if own is None else answer + b"--- out\n" + own
            notes["chat_end"] = add_to_chat(home, end, f"[{turn}] answer {told_how}", closing)

        settled = self._settled(list(also or []))
        await self._note_lasting((Kind.TURN_ENDED, notes), *(then or []), *settled, before=before)
        self._prune()

    def _prune(self) -> None:
        """Keep the bytes of the newest KEPT_ORDERS orders that ended."""
        kept = self._orders_in(self.home.taken)
        current = {self._fold.given_order, Path(self._fold.out).name}
        for order in kept[: max(0, len(kept) - KEPT_ORDERS)] if len(kept) > KEPT_ORDERS + 64 else ():
            if order.name not in current and order.kind is not OrderKind.CTL:
                (self.home.taken / order.name).unlink(missing_ok=True)


def _tail(path: Path, limit: int = 4096) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, size(path) - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _last_line(text: str) -> str:
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "")

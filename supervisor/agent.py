"""One agent, kept: look at its directory, decide, act, note. Crash-only: `keep` begins from disk every time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import assert_never

import trio

from supervisor import ctl, endings, hearing, starts, turns
from supervisor.decide import Act, Bytes, Do, Give, NoteGone, Obey, TakeOut, View, decide, stands, wake_at
from supervisor.desk import ASLEEP, Desk
from supervisor.hub import FULL
from supervisor.upkeep import Upkeep
from zoefs.contract.events import Kind, seconds
from zoefs.contract.home import PROMPTS, AgentHome, OrderKind, parse_order
from zoefs.contract.lifecycle import Life
from zoefs.contract.words import AgentName, Verb
from zoefs.disk.files import names, read_text
from zoefs.disk.history import load
from zoefs.disk.journal import Writer

HANDSHAKE_SECONDS = 60.0
COARSE_NS = 100_000_000
_AN_AGENT = AgentHome(AgentName("a"), Path("a"))
_WRITTEN_BY_OTHERS = tuple(
    str(path.relative_to(_AN_AGENT.path))
    for path in (_AN_AGENT.new, _AN_AGENT.cancelled, _AN_AGENT.cut, _AN_AGENT.spec, _AN_AGENT.born)
)
"""Names in an agent's directory. A sweep looks at those of every agent, so they are made once."""
BETWEEN_BITS, BETWEEN_FIRST = 0.03, 0.002
"""Seconds between two readings of a CLI that is in the middle of a piece: few at first, more while it goes on."""


class Gone(Exception):
    """The agent's directory was retired."""


class Agent(Desk):
    """See module. `seen`: how its directory was when it was last looked at, where that is certain."""

    __slots__ = ("seen", "upkeep")
    upkeep: Upkeep

    async def keep(self) -> None:
        """Keep the agent until there is nothing to do before somebody wakes it, or until it is retired (raises Gone).

        Any other error: begin again from disk.
        """
        if self.journal is None:
            try:
                await self.load()
                self.hub.failing.discard(self.home.name)
            finally:
                self.hub.was_read(self.home.name)
        while True:
            self.woken, self.called = trio.Event(), trio.Event()
            seen = self.stamps()
            view = await self.look()
            self.upkeep.keep(self.fold, self.hub.nursery)
            act = decide(view)
            if act is not None:
                await self.upkeep.rotate(self.fold)
                await self.act(act)
                continue
            if stands(view):
                self.hub.stand(self.home.name)
            else:
                self.hub.leave(self.home.name)
            at = wake_at(view)
            if not at and self.running is None and not self.called.is_set():
                self.rest(seen)
                return
            await self.listen(at)

    def rest(self, seen: int) -> None:
        """Hold nothing but what is known: no task, no descriptor. A wake begins again where this ends."""
        assert self.journal is not None
        self.journal.rest()
        self.seen, self.rests = seen, True
        self.woken = self.called = ASLEEP

    def stamps(self) -> int:
        """One number for the state of what others write; 0 where it changed too lately to be told from a change to
        come, since a disk's clock is coarse."""
        times = []
        for path in _WRITTEN_BY_OTHERS:
            try:
                times.append(os.stat(f"{self.home.path}/{path}").st_mtime_ns)
            except OSError:
                times.append(0)
        return hash(tuple(times)) if max(times) < time.time_ns() - COARSE_NS else 0

    def glance(self) -> None:
        """Have it look again, if something on disk changed that nobody told of."""
        if not self.rests or not self.seen or self.stamps() != self.seen:
            self.wake()

    async def listen(self, at: float) -> None:
        """Return when it is time to look again: `at` (0 is never) at the latest.

        A CLI that is in the middle of a piece is listened to, and no more: what it says then changes nothing, and comes
        in many small bits. Only the waiting is cut short: what was decoded is noted.
        """
        bits = 0
        while True:
            with trio.move_on_after(max(0.0, at - time.time()) if at else float("inf")) as wait:
                await self.woken.wait()
            running = self.running
            if wait.cancelled_caught or self.called.is_set() or running is None or running.ended:
                return
            self.woken = trio.Event()
            if await hearing.drain(self, running):
                return
            bits += 1
            with trio.move_on_after(min(BETWEEN_BITS, bits * BETWEEN_FIRST)):
                await self.called.wait()

    async def load(self) -> None:
        if read_text(self.home.born) != self.born:
            raise Gone
        path = self.hub.home.journal(self.home.name)
        history = await trio.to_thread.run_sync(load, path, self.home.snapshot, self.born, limiter=self.hub.readers)
        self.fold = history.fold
        self.journal = Writer(path, self.fold.seq)
        self.upkeep = Upkeep(self.journal, self.home.snapshot, self.hub.sizes, history.replayed)
        self.upkeep.begin()
        if self.fold.born != self.born:
            self.note((Kind.CREATED, {"name": self.home.name, "born": self.born}))
        self.read_spec()
        taken = self.orders_in(self.home.taken)
        self.ctl_orders = [o for o in taken if o.kind is OrderKind.CTL]
        claimed = [o for o in taken if o.kind in PROMPTS and o.id not in self.fold.ids and not ctl.holds(self, o)]
        if self.fold.missing > self.fold.missing_told:
            text = f"{self.fold.missing} events are missing in its journal; what they told of is not known"
            self.note((Kind.GAP, {"missing": self.fold.missing, "text": text}))
        for order in claimed:
            if self.fold.missing:  # it may have been given
                text = f"prompt {order.id}: the events that would tell of it are missing, and it is not given again"
                self.note((Kind.PROMPT_CUT, {"id": order.id, "text": text, "note": "its events are missing"}))
            else:
                os.rename(self.home.taken / order.name, self.home.new / order.name)  # claimed, never noted: not given
        await starts.adopt(self)
        ctl.take_up(self)

    async def look(self) -> View:
        if read_text(self.home.born) != self.born:
            self.note((Kind.RETIRED, {"name": self.home.name}))
            raise Gone
        if self.fold.life not in (Life.STARTING, Life.UP):
            self.read_spec()
        space = self.hub.space()
        if self.running is not None and self.fold.turn_open and not self.fold.asks and space < FULL:
            self.starved = self.running.inc
        if self.running is not None:
            await hearing.drain(self, self.running)
            self.pump(self.running)
        orders = [order for name in names(self.home.new) if (order := parse_order(name)) is not None]
        f, running = self.fold, self.running
        prompts = tuple(o for o in orders if o.kind in PROMPTS and o.id not in f.ids)
        lines = ctl.lines_of(self, orders)
        line = next(lines, None)
        ask_due = 0.0
        if f.asks and self.spec.ask_timeout:
            ask_due = seconds(next(iter(f.asks.values())).t) + self.spec.ask_timeout
        return View(
            life=f.life,
            transport=self.backend.transport,
            on_lost=self.on_lost,
            now=time.time(),
            turn_open=f.turn_open,
            alive=running is not None and not running.ended,
            started=0 < f.given_inc <= f.inc,
            same_boot=f.given_boot == self.hub.boot,
            sent=running is not None and running.sent,
            doubtful=running is not None and running.adopted and f.given_inc == running.inc != f.sent_inc,
            stdin_torn=running is not None and running.torn,
            looks_up=self.backend.looks_up,
            ask_due=ask_due,
            compacting=running is not None and bool(running.compacting),
            unable=running is not None and running.unable is not None,
            prompt=turns.find_given(self) if f.turn_open else Bytes.THERE,
            ending=self.ending.deadline if self.ending else 0.0,
            deadline=self.deadline(),
            until=f.until,
            slot=self.backend.transport == "turn" or self.hub.may_start(self.home.name),
            room=self.hub.has_room(space),
            starved=running is not None and running.inc == self.starved,
            rest=self.hub.resting,
            wanted=self.wanted,
            line=line,
            hurry=f.life is Life.STARTING and any(x.command.verb in (Verb.STOP, Verb.KILL) for x in lines),
            prompts=prompts,
            outs=tuple(o for o in orders if o.kind in (OrderKind.OUT, OrderKind.ANSWER)),
            cancelled=self.orders_in(self.home.cancelled),
            cut=self.orders_in(self.home.cut),
        )

    def deadline(self) -> float:
        """When what the CLI is to do must be done, at the latest; 0 where it has all the time."""
        f, running = self.fold, self.running
        if f.life is Life.STARTING:
            return seconds(f.spawned_t) + HANDSHAKE_SECONDS
        if running is not None and (running.interrupting or running.compacting):
            return running.interrupting or running.compacting
        return seconds(f.given_t) + self.spec.turn_timeout if f.turn_open and self.spec.turn_timeout else 0.0

    async def act(self, act: Act) -> None:
        match act:
            case Give(order=order):
                await turns.give(self, order)
            case Obey(line=line):
                await ctl.obey(self, line)
            case TakeOut(order=order):
                turns.take_out(self, order)
            case NoteGone(order=order, cut=cut):
                turns.note_gone(self, order, cut)
            case Do.BURY:
                await endings.bury(self)
            case Do.ESCALATE:
                endings.escalate(self)
            case Do.REST:
                endings.begin(self, "rest")
            case Do.REPLACE:
                endings.begin(self, "replace")
            case Do.SPAWN:
                await starts.spawn(self)
            case Do.WRITE:
                await turns.write_prompt(self)
            case Do.TIME_OUT:
                endings.time_out(self)
            case Do.LOSE:
                await turns.lose(self)
            case Do.ANSWER:
                ctl.answer_late(self)
            case Do.ABANDON:
                endings.begin(self, "unable")
            case _:
                assert_never(act)

"""One driver for both real CLIs: their trees, and agents that tell what their model was asked.

The tests share one tree a CLI; each makes agents of its own, whose journals are checked when it ends. What is
different between the CLIs and matters to a test stands here, in KINDS; a test that needs more is of one CLI.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from tests.e2e.claude_tree import AT_ONCE, CliTree, claude_tree
from tests.e2e.codex_tree import codex_tree
from tests.e2e.reading import agent_home, check_journal, cli_of, ends, events, kill, until_event
from tests.fakes.server import Entry, Fake
from tests.living import DEADLINE, Tree, wait_for
from zoefs.contract.events import Event


@attrs.frozen
class Kind:
    """What a test must know of a CLI. `free`: spec lines under which its shell tool is not asked for. `continues`: it
    goes on with a cut turn. `session_header`: where a model call names its session; `key_header`: its credential."""

    name: str
    open: Callable[[Path], contextlib.AbstractContextManager[CliTree]]
    free: str
    continues: bool
    session_header: str
    key_header: str
    shell: str
    key_variable: str


def refusal(act: Callable[[], object]) -> str:
    """Do what must be refused; the name of the errno."""
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    raise AssertionError("it was not refused")


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "claude",
            claude_tree,
            'permission = "dontAsk"\nargs = ["--allowedTools", "Bash"]\n',
            True,
            "x-claude-code-session-id",
            "x-api-key",
            "Bash",
            "ANTHROPIC_API_KEY",
        ),
        Kind(
            "codex",
            codex_tree,
            'permission = "allow"\n',
            False,
            "thread-id",
            "authorization",
            "commandExecution",
            "FAKE_API_KEY",
        ),
    )
}


@attrs.frozen
class Agent:
    """One agent of a real CLI."""

    both: Both
    name: str

    @property
    def tree(self) -> Tree:
        return self.both.tree

    @property
    def path(self) -> Path:
        """Its directory in MOUNT."""
        return self.tree.agent(self.name)

    @property
    def work(self) -> Path:
        """Where its CLI works."""
        return agent_home(self.tree, self.name).work

    def read(self, file: str) -> str:
        return (self.path / file).read_text()

    def stat(self) -> dict[str, str]:
        return self.tree.stat(self.name)

    def settle(self) -> str:
        return self.tree.settle(self.name)

    def ctl(self, text: str) -> None:
        """Write `text` to `ctl` in one write."""
        (self.path / "ctl").write_text(text + "\n")

    def refused(self, text: str) -> str:
        """Write to `ctl` what must be refused; the name of the errno."""
        return refusal(lambda: self.ctl(text))

    def prompt(self, id: str, text: str) -> None:
        (self.path / "inbox" / id).write_text(text)

    def receipt(self, id: str) -> dict[str, str]:
        return self.tree.receipt(self.name, id)[0]

    def ended(self, id: str) -> tuple[str, str]:
        """Wait for the end of a prompt; its fate and answer."""
        fate, answer = self.tree.ended(self.name, id)
        return fate, answer.decode()

    def turn(self, id: str, text: str) -> str:
        """Give a prompt whose turn must be done; its answer."""
        self.prompt(id, text)
        fate, answer = self.ended(id)
        assert fate == "done", (fate, answer, self.read("error"), self.story())
        return answer

    def ends(self, id: str) -> list[str]:
        return ends(self.tree, self.name, id)

    def events(self, kind: str = "") -> list[Event]:
        return events(self.tree, self.name, kind)

    def until(self, kind: str, more_than: int = 0) -> None:
        until_event(self.tree, self.name, kind, more_than)

    def story(self) -> str:
        """The whole journal, for the message of a failure."""
        return "\n".join(event.encode().decode().strip()[:300] for event in self.events())

    # -- asks ---------------------------------------------------------------------------------------------------

    def ask(self) -> str:
        """Wait until it asks; the id of the ask."""
        return self.ask_after("")

    def ask_after(self, old: str) -> str:
        """Wait until it asks another thing than `old`."""
        asked = [""]

        def another() -> bool:
            asked[0] = self.read("ask").partition("\n")[0].removeprefix("ask: ")
            return asked[0] not in ("", old)

        wait_for(another, f"{self.name} asks anew")
        return asked[0]

    def answers(self) -> list[str]:
        """How its asks were answered, oldest first."""
        return [event.text("decision") for event in self.events("answered")]

    # -- processes ----------------------------------------------------------------------------------------------

    def cli(self) -> int:
        return cli_of(self.tree, self.name)

    def kill_cli(self) -> None:
        """SIGKILL the CLI, and wait until the supervisor has taken note."""
        before = len(self.events("exited"))
        kill(self.cli())
        self.until("exited", before)

    def deltas(self) -> int:
        """How many bits of text the model has said in the incarnation that runs."""
        raw = agent_home(self.tree, self.name).raw(int(self.stat()["incarnation"]))
        return sum(raw.read_bytes().count(word) for word in (b'"text_delta"', b'"item/agentMessage/delta"'))

    def more_deltas_than(self, before: int) -> Callable[[], bool]:
        """Whether it has said more by now."""
        return lambda: self.deltas() > before

    # -- the witness --------------------------------------------------------------------------------------------

    def calls(self) -> list[Entry]:
        """The model calls of its turns, in this session or in any of its earlier ones."""
        sessions = {event.text("id") for event in self.events("session")}
        header = self.both.kind.session_header
        return [call for call in self.both.fake.turns() if call["headers"].get(header) in sessions]

    def texts(self, call: Entry) -> list[str]:
        return self.both.fake.user_texts(call)

    def history(self) -> list[str]:
        """The user texts of its newest model call."""
        return self.texts(self.calls()[-1])

    def asked(self, text: str) -> int:
        """How many model calls had this text as their current prompt."""
        return sum(self.texts(call)[-1:] == [text] for call in self.calls())

    def reached(self, text: str, times: int = 1) -> None:
        """Wait until its model was asked this so many times."""
        wait_for(lambda: self.asked(text) >= times, f"the model of {self.name} is asked {text[:80]!r}")

    def heard(self, text: str) -> bool:
        """Whether a model call held this text anywhere."""
        return any(text in json.dumps(call["body"], ensure_ascii=False) for call in self.calls())


@attrs.frozen
class Both:
    """One of the two CLIs, its tree, and the agents of one test."""

    kind: Kind
    cli_tree: CliTree
    numbers: Iterator[int]
    agents: list[Agent] = attrs.Factory(list)

    @property
    def tree(self) -> Tree:
        return self.cli_tree.tree

    @property
    def fake(self) -> Fake:
        return self.cli_tree.fake

    def make(self, more: str = "", spec: str = "") -> Agent:
        """Make an agent; `more` is added to the kind's spec, or `spec` stands for it."""
        agent = Agent(self, f"a{next(self.numbers)}")
        self.tree.make(agent.name, (spec or self.cli_tree.spec) + AT_ONCE + more)
        self.agents.append(agent)
        return agent

    def adopt(self, name: str) -> Agent:
        """An agent that something else made."""
        self.agents.append(Agent(self, name))
        return self.agents[-1]

    def heal(self) -> None:
        """Start what does not run."""
        self.tree.up()

    def finish(self) -> None:
        """End this test's agents, and see that their journals tell of every turn once."""
        self.heal()
        for agent in self.agents:
            with contextlib.suppress(OSError):
                agent.ctl("kill")
        for agent in self.agents:
            assert agent.settle() == "stopped"
            check_journal(self.tree, agent.name)


def gate(name: str) -> str:
    """A shell command that tells its pid in NAME.pid and goes on once NAME.go exists."""
    return f"echo $$ > {name}.pid; while [ ! -e {name}.go ]; do sleep 0.02; done; echo through {name}"


def in_tool(agent: Agent, name: str) -> int:
    """Wait until the tool of `gate` runs; its pid."""
    path = agent.work / f"{name}.pid"
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), f"{agent.name}: the tool runs", DEADLINE)
    return int(path.read_text())


def open_gate(agent: Agent, name: str) -> None:
    (agent.work / f"{name}.go").touch()


_NUMBERS = itertools.count(1)


@contextlib.contextmanager
def both_of(kind: str, base: Path) -> Iterator[tuple[Kind, CliTree]]:
    """The tree of one CLI."""
    with KINDS[kind].open(base) as found:
        yield KINDS[kind], found


@contextlib.contextmanager
def one_test(kind: Kind, cli_tree: CliTree) -> Iterator[Both]:
    """The part of one test in a tree that several share."""
    found = Both(kind, cli_tree, _NUMBERS)
    yield found
    found.finish()


def files(path: Path) -> list[str]:
    """The names in a directory, but those that begin with a dot."""
    return sorted(name for name in os.listdir(path) if not name.startswith("."))

"""The command line against a plain directory that looks like a mount: what is written, printed and returned."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner, Result

from zoefs.cli import receipts
from zoefs.cli.agents import parse_value, spec_text
from zoefs.cli.daemons import is_mounted
from zoefs.cli.main import cli
from zoefs.cli.tree import Tree, fields, within
from zoefs.cli.watch import Deadline, Look
from zoefs.contract.home import Home
from zoefs.contract.spec import parse_spec
from zoefs.contract.verbs import parse_ctl
from zoefs.contract.words import SETTLED, OrderId, Status
from zoefs.disk.layout import default_home

STAT = "status: {status}\nsupervisor: ok\n"


class Plain:
    """A directory with the files of a mount that the command line touches."""

    def __init__(self, path: Path) -> None:
        self.mount = path
        self.agents = path / "agents"
        self.agents.mkdir(parents=True)

    def agent(self, name: str, status: str = "await", **more: str) -> Path:
        path = self.agents / name
        (path / "inbox").mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{key}: {value}\n" for key, value in more.items())
        texts = {"status": f"{status}\n", "stat": STAT.format(status=status) + lines}
        for file in ("ctl", "spec", "error", "chat", "ask"):
            texts.setdefault(file, "")
        for file, text in texts.items():
            (path / file).write_text(text)
        return path

    def run(self, *words: str, input: str | bytes | None = None) -> Result:
        return CliRunner(env={"ZOEFS_MOUNT": str(self.mount)}).invoke(cli, words, input=input)


@pytest.fixture
def plain(tmp_path: Path) -> Plain:
    return Plain(tmp_path / "m")


@contextlib.contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread while the command runs."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def eventually(look: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def answer(inbox: Path, id: str, fate: str, text: str = "", note: str = "") -> None:
    """Put the receipt in place as soon as the prompt is there."""
    eventually((inbox / id).exists)
    said = f"note: {note}\n" if note else ""
    (inbox / ".r").write_text(f"receipt: {fate}\nid: {id}\n{said}turn: 1\n\n{text}")
    (inbox / ".r").rename(inbox / id)


def test_send_commits_under_the_id_and_prints_it(plain: Plain) -> None:
    inbox = plain.agent("r1") / "inbox"
    result = plain.run("send", "r1", "hello\n", "--id", "k1")
    assert (result.exit_code, result.stdout) == (0, "k1\n")
    assert (inbox / "k1").read_text() == "hello\n"
    assert os.listdir(inbox) == ["k1"]


def test_send_makes_ids_that_differ_and_are_ids(plain: Plain) -> None:
    plain.agent("r1")
    ids = {plain.run("send", "r1", "x").stdout for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize("words", [["-"], []])
def test_send_takes_standard_input_byte_by_byte(plain: Plain, words: list[str]) -> None:
    inbox = plain.agent("r1") / "inbox"
    assert plain.run("send", "r1", *words, "--id", "k", input=b"a\0\xff\r\n").exit_code == 0
    assert (inbox / "k").read_bytes() == b"a\0\xff\r\n"


@pytest.mark.parametrize(
    ("fate", "code", "complaint"),
    [
        ("done", 0, ""),
        ("failed", 1, "r1: k ended failed: no login"),
        ("lost", 1, "r1: k ended lost: no login"),
        ("cancelled", 1, "r1: k ended cancelled: no login"),
    ],
)
def test_send_wait_prints_the_answer_and_ends_by_its_fate(plain: Plain, fate: str, code: int, complaint: str) -> None:
    inbox = plain.agent("r1", "running") / "inbox"
    note = "" if fate == "done" else "no login"
    with meanwhile(lambda: answer(inbox, "k", fate, "an answer\n\nof two parts", note)):
        result = plain.run("send", "r1", "x", "--id", "k", "--wait", "--timeout", "20")
    assert (result.exit_code, result.stdout) == (code, "an answer\n\nof two parts")
    assert complaint in result.stderr


def test_send_wait_times_out(plain: Plain) -> None:
    plain.agent("r1", "running")
    result = plain.run("send", "r1", "x", "--wait", "--timeout", "0.05")
    assert result.exit_code == 5
    assert "it goes on" in result.stderr


def test_waiting_without_a_supervisor_says_so(plain: Plain) -> None:
    path = plain.agent("r1", "running")
    (path / "stat").write_text("status: running\nsupervisor: absent\n")
    for words in (["send", "r1", "x", "--wait"], ["wait", "r1"], ["stop", "r1"]):
        result = plain.run(*words)
        assert result.exit_code == 6
        assert "no supervisor works" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["send", "r9", "x"], 3, "no agent r9"),
        (["send", "../r1", "x"], 3, "no agent can be named"),
        (["send", "r1", ""], 2, "empty prompt"),
        (["send", "r1", "x", "--id", "a/b"], 4, "no id 'a/b'"),
        (["spawn", ".x"], 4, "no agent can be named"),
        (["spawn", "r1"], 4, "there is an agent r1 already"),
        (["spawn", "r2", "--set", "cwd"], 2, "--set takes KEY=VALUE"),
        (["wait", "r1", "--until", "idle"], 2, "--until takes words"),
        (["up", "--without", "mount"], 2, "--without takes"),
        (["show", "r9"], 3, "no agent r9"),
    ],
)
def test_mistakes_are_sentences_with_codes(plain: Plain, words: list[str], code: int, sentence: str) -> None:
    plain.agent("r1")
    result = plain.run(*words)
    assert result.exit_code == code
    assert sentence in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("words", [["ls"], ["send", "r1", "x"], ["wait", "r1"], ["stop", "r1"], ["spawn", "r1"]])
def test_nothing_mounted_is_exit_6(tmp_path: Path, words: list[str]) -> None:
    result = CliRunner(env={"ZOEFS_MOUNT": str(tmp_path)}).invoke(cli, words)
    assert result.exit_code == 6
    assert result.stderr == f"zoefs: nothing is mounted at {tmp_path}; run: zoefs up\n"


def test_a_refusal_is_the_sentence_of_the_agents_error(plain: Plain) -> None:
    path = plain.agent("r1", "stopped")
    (path / "error").write_text("2026-01-02T03:04:05.678Z r1 is stopped; start it first\n")
    (path / "ctl").unlink()
    (path / "ctl").mkdir()
    result = plain.run("interrupt", "r1")
    assert (result.exit_code, result.stderr) == (4, "zoefs: r1: r1 is stopped; start it first\n")


def test_wait_prints_the_settled(plain: Plain) -> None:
    plain.agent("r1")
    plain.agent("r2", "failed")
    result = plain.run("wait", "r1", "r2", "r1")
    assert (result.exit_code, result.stdout) == (0, "r1\tawait\nr2\tfailed\n")


def test_wait_any_prints_those_that_are(plain: Plain) -> None:
    plain.agent("r1", "running")
    plain.agent("r2")
    assert plain.run("wait", "--any", "r1", "r2").stdout == "r2\tawait\n"


def test_wait_holds_for_a_verb_not_carried_out(plain: Plain) -> None:
    plain.agent("r1", pending="stop")
    assert plain.run("wait", "r1", "--timeout", "0.05").exit_code == 5

    def carry_out() -> None:
        time.sleep(0.1)
        plain.agent("r1", "stopped")

    with meanwhile(carry_out):
        result = plain.run("wait", "r1", "--timeout", "20")
    assert (result.exit_code, result.stdout) == (0, "r1\tstopped\n")


def test_wait_times_out_and_tells_what_is(plain: Plain) -> None:
    plain.agent("r1", "running")
    plain.agent("r2")
    result = plain.run("wait", "r1", "r2", "--timeout", "0.05")
    assert (result.exit_code, result.stdout) == (5, "r1\trunning\nr2\tawait\n")
    assert result.stderr.endswith("within 0.05 s: r1\n")


def test_an_agent_that_goes_away_ends_the_wait(plain: Plain) -> None:
    path = plain.agent("r1", "running")

    def go() -> None:
        time.sleep(0.1)
        path.rename(plain.mount / "gone")

    with meanwhile(go):
        assert plain.run("wait", "r1", "--timeout", "20").exit_code == 3


@pytest.mark.parametrize("status", [*Status])
def test_settled_only_when_nothing_is_pending(status: Status) -> None:
    assert Look(status, False, True).is_at(SETTLED) == (status in SETTLED)
    assert not Look(status, True, True).is_at(SETTLED)
    assert Look(status, True, True).is_at(frozenset({status})) == (status not in SETTLED)


def test_verbs_are_keyed_lines_whose_fate_is_read_back(plain: Plain) -> None:
    paths = [plain.agent(name) for name in ("r1", "r2")]

    def carry_out() -> None:
        for path, fate in zip(paths, ("done", "failed"), strict=True):
            eventually(lambda path=path: (path / "ctl").stat().st_size > 0)  # type: ignore[misc]
            (command,) = parse_ctl((path / "ctl").read_bytes())
            assert command.verb == "restart"
            (path / "inbox" / command.key).write_text("")
            answer(path / "inbox", command.key, fate, note="cwd is gone" if fate == "failed" else "")

    with meanwhile(carry_out):
        result = plain.run("restart", "r1", "r2", "r9", "--timeout", "20")
    assert result.exit_code == 3
    assert "no agent r9" in result.stderr
    assert "r2: restart-" in result.stderr
    assert "ended failed: cwd is gone" in result.stderr
    assert "r1" not in result.stderr


@pytest.mark.parametrize("words", [["stop", "--no-wait"], ["restart", "--no-wait"], ["interrupt"]])
def test_no_wait_only_writes(plain: Plain, words: list[str]) -> None:
    path = plain.agent("r1", "running")
    assert plain.run(*words, "r1").exit_code == 0
    assert (path / "ctl").read_text().endswith(f" {words[0]}\n")


def test_retire_removes_the_directory(plain: Plain) -> None:
    (plain.agents / "r1").mkdir()
    assert plain.run("retire", "r1").exit_code == 0
    assert not (plain.agents / "r1").exists()


def test_ls_aligns_and_speaks_json(plain: Plain) -> None:
    (plain.agents / "list").write_text("name\tstatus\tturn\tcwd\nr1\tawait\t3\t/a b\nlonger\trunning\t12\t/\n")
    assert plain.run("ls").stdout.splitlines()[1] == "r1      await    3     /a b"
    assert json.loads(plain.run("ls", "--json").stdout) == [
        {"name": "r1", "status": "await", "turn": 3, "cwd": "/a b"},
        {"name": "longer", "status": "running", "turn": 12, "cwd": "/"},
    ]


def test_show_prints_what_there_is(plain: Plain) -> None:
    path = plain.agent("r1")
    (path / "chat").write_text("".join(f"line {n}\n" for n in range(2000)))
    text = plain.run("show", "r1").stdout
    assert text.startswith("status: await\n")
    assert "it asks" not in text
    assert text.endswith("line 1999\n")
    assert "line 0\n" not in text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("word", "word"),
        ("two words", "two words"),
        ("3", 3),
        ("2.5", 2.5),
        ("nan", "nan"),
        ("true", True),
        ('"3"', "3"),
        ('["a", "b"]', ["a", "b"]),
        ("2026-01-02", "2026-01-02"),
        ('1\nbackend = "exec"', '1\nbackend = "exec"'),
        ("", ""),
    ],
)
def test_values_are_toml_or_words(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_settings_make_a_spec() -> None:
    text = spec_text("exec", "/w", ('argv=["sed", "s/a/b/"]', "restart.burst=3", "restart.when=never", "env_file=/x y"))
    spec = parse_spec(text)
    assert (spec.backend, spec.cwd, spec.argv, spec.env_file) == ("exec", "/w", ("sed", "s/a/b/"), "/x y")
    assert (spec.restart.burst, spec.restart.when) == (3, "never")


def test_the_cwd_is_the_callers_unless_it_is_set() -> None:
    assert parse_spec(spec_text(None, None, ())).cwd == os.getcwd()
    assert parse_spec(spec_text(None, None, ("cwd=/elsewhere",))).cwd == "/elsewhere"


def test_init_makes_a_home_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "home"
    runner = CliRunner(env={"ZOEFS_HOME": str(path)})
    assert runner.invoke(cli, ["init"]).stdout == f"{path}\n"
    home = Home(path)
    home.config.write_text("[defaults]\nbackend = 'exec'\n")
    assert runner.invoke(cli, ["init"]).exit_code == 0
    assert home.config.read_text() == "[defaults]\nbackend = 'exec'\n"
    assert {path.stat().st_mode & 0o777 for path in home.directories} == {0o700}


@pytest.mark.parametrize("file", [("version", "99\n"), ("letters.txt", "mine")])
def test_init_leaves_what_is_not_its_own(tmp_path: Path, file: tuple[str, str]) -> None:
    (tmp_path / file[0]).write_text(file[1])
    result = CliRunner().invoke(cli, ["init", "--home", str(tmp_path)])
    assert result.exit_code == 4
    assert os.listdir(tmp_path) == [file[0]]


def test_default_homes() -> None:
    assert default_home({"ZOEFS_HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/h")
    assert default_home({"XDG_STATE_HOME": "/s"}) == Path("/s/zoefs")
    assert default_home({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/zoefs"


def test_receipts_read_back() -> None:
    shown = receipts.parse(b"receipt: done\nturn: 3\n\nthe\n\nanswer")
    assert (shown.fate, shown.final, shown.answer) == ("done", True, b"the\n\nanswer")
    assert not receipts.parse(b"").final
    assert fields(b"a: b: c\nno field\n\nd: e\n") == {"a": "b: c"}


def test_an_act_that_hangs_is_abandoned() -> None:
    gate = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, gate.wait)
    gate.set()


def test_mounts_are_known_from_the_kernels_list(tmp_path: Path) -> None:
    assert is_mounted(Path("/"))
    assert not is_mounted(tmp_path)


def test_the_start_imports_nothing_heavy() -> None:
    heavy = ("trio", "pyfuse3", "subprocess", "asyncio")
    code = f"import sys, zoefs.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_receipt_is_not_judged_by_a_later_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop is carried out between the reading of its receipt and the look at the agent."""
    told = iter([b"receipt: queued\n\n", b"receipt: done\n\n"])
    tree = SimpleNamespace(agent=Path, do=lambda read, name: next(told))
    seen = Look("stopped", pending=False, supervised=True)
    monkeypatch.setattr(receipts, "Watch", lambda tree: contextlib.nullcontext())
    monkeypatch.setattr(receipts, "look", lambda tree, name: seen)
    shown = receipts.wait_for(cast(Tree, tree), "r1", OrderId("k1"), Deadline(None))
    assert shown.fate == "done"

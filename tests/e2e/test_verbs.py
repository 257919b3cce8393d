"""The command line through a real tree: what it says is what the files say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.living import Tree


def zoefs(tree: Tree, *words: str, input: str = "") -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "zoefs.cli.main", *words]
    done = subprocess.run(argv, env=tree.env, input=input, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def spawn(tree: Tree, name: str, argv: str, *words: str) -> None:
    assert zoefs(tree, "spawn", name, "--backend", "exec", "--set", f"argv={argv}", *words)[0] == 0


def test_a_prompt_goes_out_and_the_answer_comes_back(tree: Tree) -> None:
    spawn(tree, "r1", '["tr", "a-z", "A-Z"]')
    assert zoefs(tree, "send", "r1", "hello", "--wait") == (0, "HELLO", "")
    assert zoefs(tree, "send", "r1", "-", "--wait", input="two\n\nlines\n") == (0, "TWO\n\nLINES\n", "")
    assert zoefs(tree, "wait", "r1") == (0, "r1\tawait\n", "")


def test_an_id_is_given_once(tree: Tree) -> None:
    spawn(tree, "r1", '["cat"]')
    assert zoefs(tree, "send", "r1", "x", "--id", "k1")[0] == 0
    code, out, err = zoefs(tree, "send", "r1", "x", "--id", "k1")
    assert (code, out) == (4, "")
    assert "k1" in err
    assert zoefs(tree, "wait", "r1")[0] == 0
    assert [name for name in os.listdir(tree.mount / "agents/r1/inbox") if name.startswith(".")] == []


def test_a_failed_turn_is_exit_1_and_keeps_its_words(tree: Tree) -> None:
    spawn(tree, "r1", '["sh", "-c", "echo half; exit 3"]')
    code, out, err = zoefs(tree, "send", "r1", "x", "--wait")
    assert (code, out) == (1, "half\n")
    assert "failed" in err


@pytest.mark.parametrize("setting", ["colour=red", "backend=none", "argv=[]", "turn_timeout=soon"])
def test_a_refused_spec_leaves_no_agent(tree: Tree, setting: str) -> None:
    code, out, err = zoefs(tree, "spawn", "r1", "--backend", "exec", "--set", 'argv=["cat"]', "--set", setting)
    assert (code, out) == (4, "")
    assert setting.partition("=")[0] in err
    assert os.listdir(tree.mount / "agents") == ["list"]


def test_spawn_takes_the_callers_directory_and_a_first_prompt(tree: Tree) -> None:
    assert zoefs(tree, "spawn", "r1", "--backend", "exec", "--set", 'argv=["pwd"]', "--prompt", "where?")[0] == 0
    assert zoefs(tree, "wait", "r1")[0] == 0
    assert (tree.mount / "agents/r1/out").read_text() == f"{Path.cwd()}\n"


def test_the_life_of_an_agent(tree: Tree) -> None:
    spawn(tree, "r1", '["sh", "-c", "sleep 60"]')
    assert zoefs(tree, "send", "r1", "x", "--id", "k1")[0] == 0
    code, _, err = zoefs(tree, "retire", "r1")
    assert code == 4
    assert err.startswith("zoefs: r1: ")
    assert zoefs(tree, "interrupt", "r1") == (0, "", "")
    assert zoefs(tree, "wait", "r1", "--timeout", "30") == (0, "r1\tawait\n", "")
    assert zoefs(tree, "stop", "r1") == (0, "", "")
    code, _, err = zoefs(tree, "send", "r1", "x")
    assert code == 4
    assert "start" in err
    assert zoefs(tree, "restart", "r1") == (0, "", "")
    assert zoefs(tree, "wait", "r1") == (0, "r1\tawait\n", "")
    assert "last_turn: interrupted" in zoefs(tree, "show", "r1")[1]
    assert zoefs(tree, "retire", "--stop", "r1") == (0, "", "")
    assert zoefs(tree, "show", "r1")[0] == 3


def test_ls_is_the_list(tree: Tree) -> None:
    spawn(tree, "r1", '["cat"]')
    spawn(tree, "r2", '["cat"]')
    (one, two) = json.loads(zoefs(tree, "ls", "--json")[1])
    assert (one["name"], one["status"], one["turn"], one["backend"], two["name"]) == ("r1", "await", 0, "exec", "r2")
    assert len(zoefs(tree, "ls")[1].splitlines()) == 3

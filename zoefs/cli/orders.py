"""`stop`, `restart`, `interrupt` and `retire`: verbs written to `ctl` under a key, so that their fate can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from zoefs.cli.complete import agent_names
from zoefs.cli.fail import Failure, end
from zoefs.cli.receipts import judge, make_id, wait_for
from zoefs.cli.tree import Tree, give
from zoefs.cli.watch import Deadline
from zoefs.cli.where import mount_option
from zoefs.contract.verbs import Command
from zoefs.contract.words import OrderId, Verb

TIMEOUT = 60.0
"""Seconds a verb is waited for by default: a stop goes through EOF, TERM and KILL, with a grace each."""

names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=agent_names)
no_wait_option = click.option("--no-wait", is_flag=True, help="Return once it is accepted.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=TIMEOUT,
    show_default=True,
    metavar="S",
    help="Wait S seconds at most.",
)


def _finish(tree: Tree, name: str, key: OrderId, deadline: Deadline) -> None:
    """Wait until a verb is carried out. Raises Failure where it was not."""
    end(judge(name, key, wait_for(tree, name, key, deadline), tree.agent(name) / "inbox" / key))


def _each(names: tuple[str, ...], act: Callable[[str], None]) -> list[Failure]:
    """Do it for every agent, whatever became of the others."""
    failures = []
    for name in dict.fromkeys(names):
        try:
            act(name)
        except Failure as failure:
            failures.append(failure)
    return failures


def _order(names: tuple[str, ...], verb: Verb, mount: Path, seconds: float | None) -> None:
    """Give a verb to all, then wait for all unless `seconds` is None."""
    tree = Tree(mount)
    keys: dict[str, OrderId] = {}

    def start(name: str) -> None:
        keys[name] = give(tree, name, Command(verb, key=make_id(verb)))

    failures = _each(names, start)
    if seconds is not None:
        deadline = Deadline(seconds)
        failures += _each(tuple(keys), lambda name: _finish(tree, name, keys[name], deadline))
    end(failures)


@click.command()
@names_argument
@no_wait_option
@timeout_option
@mount_option
def stop(names: tuple[str, ...], no_wait: bool, timeout: float, mount: Path) -> None:
    """Stop agents. Their queue and last answer stay."""
    _order(names, Verb.STOP, mount, None if no_wait else timeout)


@click.command()
@names_argument
@no_wait_option
@timeout_option
@mount_option
def restart(names: tuple[str, ...], no_wait: bool, timeout: float, mount: Path) -> None:
    """Restart agents in their sessions; a failure is forgotten."""
    _order(names, Verb.RESTART, mount, None if no_wait else timeout)


@click.command()
@names_argument
@mount_option
def interrupt(names: tuple[str, ...], mount: Path) -> None:
    """End the running turn of agents; their processes live."""
    _order(names, Verb.INTERRUPT, mount, None)


@click.command()
@names_argument
@click.option("--stop", "stop_first", is_flag=True, help="Stop those that are not stopped.")
@timeout_option
@mount_option
def retire(names: tuple[str, ...], stop_first: bool, timeout: float, mount: Path) -> None:
    """Take agents away; their history stays in HOME."""
    tree = Tree(mount)
    deadline = Deadline(timeout)

    def act(name: str) -> None:
        if stop_first:
            _finish(tree, name, give(tree, name, Command(Verb.STOP, key=make_id(Verb.STOP))), deadline)
        tree.do(tree.agent(name).rmdir, name)

    end(_each(names, act))

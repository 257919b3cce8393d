"""`send` and `wait`: a prompt goes in under an id, and somebody waits for what becomes of it."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import click

from zoefs.cli.complete import agent_names
from zoefs.cli.fail import Failure, end
from zoefs.cli.receipts import check_id, judge, make_id, wait_for
from zoefs.cli.tree import PATIENCE_TO_WRITE, Tree, give
from zoefs.cli.watch import AGAIN, Deadline, Watch, absent, look
from zoefs.cli.where import mount_option
from zoefs.contract.verbs import Command
from zoefs.contract.words import SETTLED, Exit, OrderId, Status, Verb
from zoefs.disk.files import write_all

timeout_option = click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Give up after S seconds.")


def commit(tree: Tree, name: str, id: OrderId, data: bytes) -> None:
    """Stage a prompt as a draft and commit it by one rename. Raises Failure with nothing left behind."""
    inbox = tree.agent(name) / "inbox"
    draft = inbox / f".{make_id('draft')}"

    def act() -> None:
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_all(fd, data)
            finally:
                os.close(fd)
            os.rename(draft, inbox / id)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    tree.do(act, name, PATIENCE_TO_WRITE)


def _given(text: str | None) -> bytes:
    """The prompt's bytes: TEXT as it was typed, or standard input to its end."""
    if text is not None and text != "-":
        return os.fsencode(text)
    if text is None and sys.stdin.isatty():
        raise click.UsageError("nothing to send: give TEXT, or - and the text on standard input")
    return sys.stdin.buffer.read()


@click.command()
@click.argument("name", shell_complete=agent_names)
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--id", "id", metavar="ID", help="The prompt's id, yours to choose; the same id twice is refused.")
@click.option("--steer", is_flag=True, help="Say it into the running turn, where that is possible; one line of text.")
@click.option("--wait", is_flag=True, help="Wait for the turn to end and print the answer instead of the id.")
@timeout_option
@mount_option
def send(
    name: str, text: str | None, id: str | None, steer: bool, wait: bool, timeout: float | None, mount: Path
) -> None:
    """Give agent NAME a prompt and print its id."""
    order = check_id(id) if id else make_id("send")
    data = _given(text)
    if not data:
        raise Failure(Exit.USAGE, "an empty prompt is nothing: there is nothing to send")
    tree = Tree(mount)
    deadline = Deadline(timeout)
    if steer:
        give(tree, name, Command(Verb.STEER, _one_line(data), order))
    else:
        commit(tree, name, order, data)
    if not wait:
        click.echo(order)
        return
    shown = wait_for(tree, name, order, deadline)
    sys.stdout.buffer.write(shown.answer)
    sys.stdout.buffer.flush()
    end(judge(name, order, shown, tree.agent(name) / "inbox" / order))


def _one_line(data: bytes) -> str:
    """The text of a steer. Raises UsageError for more than one line of text."""
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise click.UsageError("--steer takes UTF-8 text") from None
    if not text or "\n" in text:
        raise click.UsageError("--steer takes one line of text; send more as a prompt, or name a file in it")
    return text


def _until(text: str | None) -> frozenset[str]:
    """The words of `--until`; the settled ones where it is not given."""
    if text is None:
        return SETTLED
    words = frozenset(word for word in text.split(",") if word)
    if not words or not words <= set(Status):
        raise click.UsageError(f"--until takes words of {','.join(Status)}, separated by commas")
    return words


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=agent_names)
@click.option("--until", metavar="WORD,...", help="The statuses to wait for; default await,blocked,stopped,failed.")
@click.option("--any", "any_", is_flag=True, help="Wait for one of the agents instead of all.")
@timeout_option
@mount_option
def wait(names: tuple[str, ...], until: str | None, any_: bool, timeout: float | None, mount: Path) -> None:
    """Wait until the agents are settled, and print NAME and status of those that are."""
    words = _until(until)
    tree = Tree(mount)
    deadline = Deadline(timeout)
    again = AGAIN * max(1.0, len(names) / 50)
    with Watch(tree) as watch:
        while True:
            seen = {name: look(tree, name) for name in dict.fromkeys(names)}
            there = {name: one.status for name, one in seen.items() if one.is_at(words)}
            if not all(one.supervised for one in seen.values()):
                _print({name: one.status for name, one in seen.items()})
                raise absent(tree)
            if len(there) == len(seen) or (any_ and there):
                return _print(there)
            if deadline.passed:
                _print({name: one.status for name, one in seen.items()})
                late = " ".join(name for name in seen if name not in there)
                raise Failure(Exit.TIMED_OUT, f"not {'/'.join(sorted(words))} within {timeout:g} s: {late}")
            rest = {name: one.status for name, one in seen.items() if name not in there}
            watch.pause(rest, deadline.left(again))


def _print(statuses: dict[str, str]) -> None:
    for name, status in statuses.items():
        click.echo(f"{name}\t{status}")

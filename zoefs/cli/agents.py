"""`spawn`, `ls` and `show`: agents made, listed and looked at."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tomllib
from pathlib import Path

import click

from zoefs.cli.complete import agent_names
from zoefs.cli.fail import Failure
from zoefs.cli.prompts import commit
from zoefs.cli.receipts import make_id
from zoefs.cli.tree import PATIENCE_TO_WRITE, Tree
from zoefs.cli.where import mount_option
from zoefs.contract.spec import encode_spec
from zoefs.contract.words import AGENT_NAME_RULE, Exit, is_agent_name
from zoefs.disk.files import write_all

CHAT_SHOWN = 4096
"""Bytes of the end of `chat` that `show` prints."""

_KEY = re.compile(r"([A-Za-z0-9_-]+)(?:\.([A-Za-z0-9_-]+))?")


def parse_value(text: str) -> object:
    """`text` as a TOML value; as itself where it is none, such as a bare word."""
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    match table:
        case {"value": float() as number, **rest} if rest or not math.isfinite(number):
            return text
        case {"value": str() | int() | float() | list() | dict() as value, **rest} if not rest:
            return value
        case _:
            return text


def spec_text(backend: str | None, cwd: str | None, settings: tuple[str, ...]) -> str:
    """The spec that the options of `spawn` stand for. Raises UsageError for a setting that is none."""
    values: dict[str, object] = {"backend": backend} if backend else {}
    try:
        values["cwd"] = os.path.abspath(cwd or ".")
    except OSError as error:
        raise Failure(Exit.REFUSED, f"the directory you are in is gone ({error.strerror}); give --cwd") from None
    for setting in settings:
        name, equals, text = setting.partition("=")
        key = _KEY.fullmatch(name.strip())
        if not equals or key is None:
            raise click.UsageError(f"--set takes KEY=VALUE, not {setting[:80]!r}")
        if key[2] is None:
            values[key[1]] = parse_value(text.strip())
            continue
        table = values.setdefault(key[1], {})
        if not isinstance(table, dict):
            raise click.UsageError(f"--set {name}: {key[1]} is set to a value already")
        table[key[2]] = parse_value(text.strip())
    try:
        return encode_spec(values)
    except TypeError as error:
        raise click.UsageError(f"--set: {error}") from None


@click.command()
@click.argument("name")
@click.option("--backend", metavar="B", help="The kind of CLI; default from config.toml, else claude.")
@click.option("--cwd", metavar="D", help="Where the CLI works; default: here.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of the spec; VALUE is TOML or a word."
)
@click.option("--prompt", metavar="TEXT", help="Give it this prompt at once and print the prompt's id.")
@mount_option
def spawn(
    name: str, backend: str | None, cwd: str | None, settings: tuple[str, ...], prompt: str | None, mount: Path
) -> None:
    """Make agent NAME."""
    spec = spec_text(backend, cwd, settings).encode()
    tree = Tree(mount)
    make(tree, name, spec)
    if prompt:
        id = make_id("send")
        commit(tree, name, id, os.fsencode(prompt))
        click.echo(id)


def make(tree: Tree, name: str, spec: bytes) -> None:
    """Make an agent with this spec, or nothing. Raises Failure."""
    if not is_agent_name(name):
        raise Failure(Exit.REFUSED, f"no agent can be named {name[:80]!r}: {AGENT_NAME_RULE}")
    agent = tree.agent(name)
    try:
        tree.do(agent.mkdir)
    except Failure as failure:
        if failure.code == Exit.REFUSED and tree.do(agent.is_dir):
            raise Failure(Exit.REFUSED, f"there is an agent {name} already") from None
        raise
    try:
        tree.do(lambda: _write(agent / "spec", spec), name, PATIENCE_TO_WRITE)
    except Failure:
        with contextlib.suppress(Failure):
            tree.do(agent.rmdir)
        raise


@click.command()
@click.argument("name", shell_complete=agent_names)
@click.argument("new")
@mount_option
def fork(name: str, new: str, mount: Path) -> None:
    """Make agent NEW, which goes on from a copy of NAME's conversation: same spec, same directory, own session."""
    tree = Tree(mount)
    values = tomllib.loads(tree.text(tree.agent(name) / "spec", name))
    stat = tree.fields(tree.agent(name) / "stat", name)
    if not stat["session"] or stat["turn"] == "0":
        raise Failure(Exit.REFUSED, f"{name} has had no turn to fork yet; give it a prompt first")
    cwd = next((_plain(row[-1]) for row in tree.table()[1:] if row[0] == name), "")
    make(tree, new, encode_spec({**values, "cwd": cwd, "fork": name}).encode())


def _write(path: Path, data: bytes) -> None:
    """Write a file of the mount in one write, so that it is judged as a whole."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def _plain(cell: str) -> str:
    """A cell of `list` without the escapes that keep a line a line."""
    return re.sub(r"\\([tn\\])", lambda found: {"t": "\t", "n": "\n"}.get(found[1], "\\"), cell)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object an agent, in a list.")
@mount_option
def ls(as_json: bool, mount: Path) -> None:
    """List the agents."""
    rows = Tree(mount).table()
    if as_json:
        head = rows[0] if rows else []
        cells = [{k: _number(_plain(v)) for k, v in zip(head, row, strict=False)} for row in rows[1:]]
        click.echo(json.dumps(cells, indent=1))
        return
    widths = [max(len(row[n]) for row in rows if n < len(row)) for n in range(max(map(len, rows), default=0))]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip())


def _number(text: str) -> str | int:
    return int(text) if text.isdecimal() and str(int(text)) == text else text


@click.command()
@click.argument("name", shell_complete=agent_names)
@mount_option
def show(name: str, mount: Path) -> None:
    """Show what there is to know of agent NAME."""
    tree = Tree(mount)
    agent = tree.agent(name)
    click.echo(tree.text(agent / "stat", name).rstrip())
    for title, text in (
        ("it asks", tree.text(agent / "ask", name)),
        ("last refusal or failure", tree.text(agent / "error", name)),
        ("end of the conversation", tree.do(lambda: _end_of(agent / "chat"), name)),
    ):
        if text.strip():
            click.echo(f"\n--- {title}\n{text.rstrip()}")


def _end_of(path: Path) -> str:
    """The last CHAT_SHOWN bytes of a file, from the beginning of a line where they hold one."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - CHAT_SHOWN)
        file.seek(start)
        data = file.read(CHAT_SHOWN)
    return (data.partition(b"\n")[2] or data if start else data).decode(errors="replace")

"""Names of agents for a shell that completes a line, and what makes a shell ask for them.

Rules. A shell that completes waits for us with its user: what does not answer at once has no names, and nothing is
ever said on stderr.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from zoefs.cli.tree import within
from zoefs.cli.where import mount_of
from zoefs.contract.words import is_agent_name

PATIENCE = 0.5
"""Seconds that a mount has to list its agents."""
VARIABLE = "_ZOEFS_COMPLETE"
"""Set by the shell when it asks; the name is click's."""
SHELLS = ("bash", "zsh", "fish")


def agent_names(context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The agents whose names begin so, those that stand on the line already left out; none where nobody answers."""
    given = context.params.get("mount")
    mount = given if isinstance(given, Path) else mount_of(None)
    there = set()
    for value in context.params.values():
        there |= {value} if isinstance(value, str) else set(value) if isinstance(value, tuple) else set()
    try:
        found = within(PATIENCE, lambda: os.listdir(mount / "agents"))
    except (OSError, TimeoutError):
        return []
    names = sorted(name for name in found if is_agent_name(name) and name.startswith(incomplete) and name not in there)
    return [CompletionItem(name) for name in names]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands, options and names of agents."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "zoefs", VARIABLE).source())

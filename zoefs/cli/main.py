"""`zoefs`: the door to every command."""

from __future__ import annotations

from typing import Any

import click

import zoefs
from zoefs.cli import agents, complete, doctor, down, follow, manual, orders, prompts, up
from zoefs.cli.fail import Failure


class Commands(click.Group):
    """The group whose commands may end by a Failure."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a Failure becomes its sentence and its exit code."""
        try:
            return super().invoke(ctx)
        except Failure as failure:
            failure.show()
            ctx.exit(failure.code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(zoefs.__version__, prog_name="zoefs")
def cli() -> None:
    """Every agent CLI is a directory, and everything one can do to an agent is a read or a write.

    Exit codes: 0 done, 1 the thing failed, 2 usage, 3 not found, 4 refused, 5 timed out, 6 a part is not running.
    """


for command in (
    up.init,
    up.up,
    down.down,
    up.mount,
    agents.spawn,
    agents.fork,
    prompts.send,
    prompts.wait,
    agents.ls,
    agents.show,
    follow.follow,
    orders.stop,
    orders.restart,
    orders.interrupt,
    orders.retire,
    doctor.doctor,
    complete.completion,
    manual.help,
):
    cli.add_command(command)


def main() -> None:
    """The entry point of the program `zoefs`."""
    cli(prog_name="zoefs")


if __name__ == "__main__":
    main()

"""`zoefs-supervisor run`: what `zoefs up` and systemd units call."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from zoefs.contract.home import Home
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import Exit
from zoefs.disk.layout import default_home, ensure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the supervisor in the foreground; returns an exit code of words.Exit."""
    parser = argparse.ArgumentParser(prog="zoefs-supervisor", description="Keep the agents of one HOME running.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run in the foreground until SIGTERM (agents go on) or SIGUSR1 (they end)")
    run.add_argument("--home", default=default_home(os.environ), help="HOME (default: %(default)s)")
    given = parser.parse_args(arguments)

    import trio

    from supervisor.keep import run as keep
    from zoefs.disk.lock import Held

    home = Home(Path(given.home).resolve())
    try:
        ensure(home)
        trio.run(keep, home, dict(os.environ))
    except Refusal as refusal:
        print(f"zoefs-supervisor: {refusal.sentence}", file=sys.stderr)
        return Exit.REFUSED
    except Held as held:
        print(f"zoefs-supervisor: {home.path} is already supervised by pid {held.mark.pid}", file=sys.stderr)
        return Exit.REFUSED
    except OSError as error:
        print(f"zoefs-supervisor: {error}", file=sys.stderr)
        return Exit.FAILED
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())

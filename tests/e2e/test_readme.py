"""The README is one screen, and what it shows is what happens: its terminal is typed and compared, pids aside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
HOME_SHOWN = "/home/you"


def transcript() -> list[str]:
    """The lines of the terminal that the README shows."""
    (block,) = [block for block in re.findall(r"(?:^    .*\n)+", README, flags=re.M) if "$ zoefs up" in block]
    return [line[4:] for line in block.splitlines()]


def masked(text: str) -> str:
    return re.sub(r"\(pid \d+\)", "(pid N)", text)


def test_it_is_one_screen() -> None:
    assert len(README.splitlines()) <= 60
    assert max(map(len, README.splitlines())) <= 120


def test_the_terminal_shows_what_happens(base: Path) -> None:
    lines = transcript()
    (base / "bin").mkdir()
    program = base / "bin" / "zoefs"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m zoefs.cli.main "$@"\n')
    program.chmod(0o755)
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    script = "".join(f"cat <<'END'\n$ {command}\nEND\n{command}\n" for command in commands)
    path = f"{program.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env={"HOME": str(base), "PATH": path},
            cwd=base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        subprocess.run([program, "down"], env={"HOME": str(base), "PATH": path}, capture_output=True, timeout=120)
    assert done.stderr == ""
    assert masked(done.stdout) == masked("\n".join(lines).replace(HOME_SHOWN, str(base)) + "\n")

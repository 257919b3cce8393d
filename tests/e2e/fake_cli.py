"""A CLI that speaks just enough of the claude protocol to be started, to echo, and to die as it is told.

Where a test is about the supervisor and not about the CLI, this one starts in 30 ms and is needed nowhere else.
"""

from __future__ import annotations

import sys
from pathlib import Path

FAKE_CLI = """#!{python}
import json, os, sys
base = os.path.dirname(os.path.abspath(__file__))
with open(base + "/starts", "a") as file: file.write(str(os.getpid()) + chr(10))
mode = open(base + "/mode").read().strip()
if mode == "die":
    sys.exit("fake: no such luck")
say = lambda **line: print(json.dumps(line), flush=True)
session = sys.argv[1 + max(n for n, word in enumerate(sys.argv) if word in ("--session-id", "--resume"))]
record = base + "/.claude/projects/fake/" + session + ".jsonl"
if mode == "taken":
    sys.exit("Error: Session ID x is already in use.")
if mode == "slow":
    import time
    open(base + "/in-handshake-" + str(os.getpid()), "w").close()
    while not os.path.exists(base + "/go"): time.sleep(0.01)
    os.unlink(base + "/in-handshake-" + str(os.getpid()))
if mode == "deaf":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for text in sys.stdin:
    line = json.loads(text)
    if line["type"] == "control_request":
        say(type="control_response", response=dict(subtype="success", request_id=line["request_id"], response=dict()))
    if line["type"] == "user":
        os.makedirs(os.path.dirname(record), exist_ok=True)
        open(record, "a").close()
        if mode == "die-in-turn":
            os.kill(os.getpid(), 9)
        say(type="command_lifecycle", command_uuid=line["uuid"], state="started")
        if mode == "ask":
            asked = dict(subtype="can_use_tool", tool_name="Bash", input=dict(command="true"), tool_use_id="t1")
            say(type="control_request", request_id="asked", request=asked)
            continue
        say(type="result", subtype="success", is_error=False, num_turns=1, terminal_reason="completed",
            result="fake: " + line["message"]["content"])
while mode == "deaf":
    signal.pause()
"""
"""Speaks as much of the claude protocol as an echo needs. `mode` says how it behaves; `starts` counts its starts."""


class Fake:
    """The small CLI in a directory of its own."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.binary = path / "claude"
        self.binary.write_text(FAKE_CLI.replace("{python}", sys.executable))
        self.binary.chmod(0o755)
        self.be("well")

    @property
    def env(self) -> dict[str, str]:
        """What a tree needs to run it; its records are in its own directory."""
        return {"ZOEFS_CLAUDE": str(self.binary), "HOME": str(self.path)}

    def be(self, mode: str) -> None:
        """How it behaves from its next start on."""
        (self.path / "mode").write_text(mode)

    @property
    def starts(self) -> list[int]:
        """The pids of its starts so far."""
        path = self.path / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

"""A CLI that says whatever a test wants, byte by byte, in the claude protocol: its prompt is a Python program.

The program has `raw(bytes)` (one write), `say(**line)` (one JSON line), `text(str)` (a finished piece), `delta(str)`,
`result(str)`, `base` (the directory of the CLI) and `time`. A turn that does not say its result gets an empty one.
"""

from __future__ import annotations

import sys
from pathlib import Path

TELLER = """#!{python}
import json, os, sys, time
base = os.path.dirname(os.path.abspath(__file__))
def raw(data):
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view):]
        except OSError:
            return
def say(**line): raw(json.dumps(line).encode() + b"\\n")
def text(words): say(type="assistant", message=dict(id="m", content=[dict(type="text", text=words)]))
def delta(words):
    say(type="stream_event", event=dict(type="content_block_delta", delta=dict(type="text_delta", text=words)))
def result(words):
    global told
    told = True
    say(type="result", subtype="success", is_error=False, num_turns=1, terminal_reason="completed", result=words)
session = sys.argv[1 + max(n for n, word in enumerate(sys.argv) if word in ("--session-id", "--resume"))]
record = base + "/.claude/projects/teller/" + session + ".jsonl"
done = set()
for got in sys.stdin:
    line = json.loads(got)
    if line["type"] == "control_request":
        say(type="control_response", response=dict(subtype="success", request_id=line["request_id"], response=dict()))
    if line["type"] == "user":
        os.makedirs(os.path.dirname(record), exist_ok=True)
        known = open(record).read().split() if os.path.exists(record) else []
        if line["uuid"] not in known:
            say(type="command_lifecycle", command_uuid=line["uuid"], state="started")
            told = False
            exec(line["message"]["content"])
            told or result("")
            with open(record, "a") as file: file.write(line["uuid"] + chr(10))
        say(type="command_lifecycle", command_uuid=line["uuid"], state="completed")
        say(type="system", subtype="session_state_changed", state="idle")
"""
"""As the real one it does not run a uuid twice, and says `completed` of it."""


class Teller:
    """The CLI in a directory of its own. `env` is what a tree needs to run it."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.binary = path / "claude"
        self.binary.write_text(TELLER.replace("{python}", sys.executable))
        self.binary.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        return {"ZOEFS_CLAUDE": str(self.binary), "HOME": str(self.path)}

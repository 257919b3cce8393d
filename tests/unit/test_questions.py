"""What strangers ask: each question, the word that they would look up, and where the answer is found by it.

The answer must be among what `zoefs help WORD` prints, and so on the page that the entrance names for the word.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from zoefs.cli.main import cli

QUESTIONS = {
    "what does `Host is down` mean": ("host is down", "The agent is stopped or failed"),
    "what is EHOSTDOWN": ("EHOSTDOWN", "names the verb that helps"),
    "how do I cancel a queued prompt": ("cancel", "`rm inbox/ID` takes back what is `queued`"),
    "what is `arriving`": ("arriving", "being written now"),
    "the daemon is killed while I write": ("mount daemon died", "sent at its next start if it was flushed"),
    "which permission words has codex": ("permission", "on-request/workspace-write"),
    "how do I see what it costs": ("cost", "cost_usd"),
    "where is the CLI's stderr": ("stderr", "err/N.log"),
    "how long does `wait` wait": ("wait", "nothing after 0.8 s"),
    "how do I change the model": ("model", "echo stop > ctl"),
    "what does exit code 6 mean": ("6", "A part is not running"),
    "what if a shell says `Transport endpoint is not connected`": ("transport endpoint", "The mount daemon is dead"),
    "how do I delete an agent": ("delete", "zoefs retire r1 --stop"),
    "how do I rename an agent": ("rename", "There is no rename"),
    "how large may a prompt be": ("16 MiB", "A prompt has 1 byte to 16 MiB"),
    "how many prompts may wait": ("EAGAIN", "1,000 prompts or 64 MiB"),
    "how do I answer a question with choices": ("allow", "the number or the name of a choice"),
    "where does allow-always keep its rule": ("allow-always", "rules of its CODEX_HOME"),
    "what is a keeper": ("keeper", "by which a CLI outlives a supervisor"),
    "what does `uncertain` mean": ("uncertain", "never silently repeated"),
    "what does `lost` mean, may I send again": ("lost", "under another id"),
    "what is in `fold.json`, may I remove it": ("fold.json", "It may be removed"),
    "how do I give it an API key": ("api key", "Name its variable in the spec"),
    "how do I set the system prompt": ("system prompt", "Text appended to the CLI's system prompt"),
    "how do I run it under systemd": ("systemd", "ExecStart=%h/.local/bin/zoefs up --foreground"),
    "how do I limit the time of a turn": ("turn_timeout", "interrupted"),
    "is there a budget": ("budget_usd", "Keys that later versions may act on are refused"),
    "what do I do after a crash or reboot": ("reboot", "There is nothing else to do"),
    "how do I move HOME": ("move-home", "set ZOEFS_HOME"),
    "what may an agent write": ("zoefs-agents", "What it may write is little"),
    "how do I follow an agent's work": ("follow", "until Ctrl-C"),
    "what is in a turn-ended event": ("turn-ended", "`total_usd`"),
    "what does the ~ before a cost mean": ("cost_usd", "estimated from tokens"),
    "which options must sshfs have": ("sshfs", "sshfs_sync,direct_io,dir_cache=no"),
    "what happens at SIGUSR1": ("SIGUSR1", "Ends the CLIs of all agents in good order"),
    "why is my spec refused": ("spec", "unknown key or an impossible value is EINVAL"),
    "can others read my agents": ("allow-other", "as far as the modes permit"),
    "what is `evidence`": ("evidence", "the event that set the status"),
    "what is `crash-loop`": ("crash-loop", "died too often"),
    "how do I wait in a program": ("poll(2)", "readable when there is another word, or another ended turn"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_found(question: str) -> None:
    word, answer = QUESTIONS[question]
    done = CliRunner().invoke(cli, ["help", "--", *word.split()])
    assert done.exit_code == 0, done.output
    assert " ".join(answer.split()) in " ".join(done.output.split()), done.output

"""What strangers ask: each question, the word that they would look up, and where the answer is found by it.

The answer must be among what `zoefs help WORD` prints, and so on the page that the entrance names for the word.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from zoefs.cli.main import cli

QUESTIONS = {
    "what does `Host is down` mean": ("host is down", "The agent is stopped or failed"),
    "was my prompt kept when it was refused": ("EHOSTDOWN", "Nothing of the prompt was kept"),
    "what is EHOSTDOWN": ("EHOSTDOWN", "names the verb that helps"),
    "how do I cancel a queued prompt": ("cancel", "`rm inbox/ID` takes back what is `queued`"),
    "which queued prompt is mine, if I wrote to `in`": ("cancel", "its text is in `$ZOEFS_HOME/agents/r1/orders/new"),
    "may I cancel what waits for a stopped agent": ("cancel", "of a stopped or failed agent too"),
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
    "how do I poll": ("poll", "poll(2) wakes who has `status` open"),
    "what are the limits": ("limits", "The queue of an agent holds 1,000 prompts"),
    "is there a limit": ("limit", "A prompt has 1 byte to 16 MiB"),
    "how do I back up": ("backup", "or copy an atomic snapshot"),
    "may I copy HOME while it runs": ("zoefs-home", "Do not copy a running HOME but by an atomic snapshot"),
    "how do I restore a backup, on another machine too": ("restore", "Never run both"),
    "how do I uninstall it": ("uninstall", "HOME stays until you remove it"),
    "what becomes of queued prompts at an upgrade": ("upgrade", "queued prompts stay"),
    "what if the layout of HOME differs": ("upgrade", "refused with exit 4 and not touched"),
    "is there a timeout": ("timeout", "A turn longer than this is interrupted"),
    "do prompts run in parallel": ("parallel", "writers at the same time never mix"),
    "are prompts persistent": ("persist", "Once close() returned 0"),
    "was it delivered": ("delivered", "The CLI said that it has it"),
    "what is the maximum": ("maximum", "at most 200 bytes"),
    "how do I resume reading events": ("resume", "keeps the `seq` of the last one that it is done with"),
    "what is `seq`": ("seq", "one more each time"),
    "what is `v` in an event": ("v", "new kinds and fields do not change it"),
    "which names may an agent have": ("names", "at most 64 bytes, not beginning with"),
    "how long may a name be": ("ENAMETOOLONG", "that is too long is EINVAL"),
    "what does `kill -9` do": ("kill -9", "now, by SIGKILL"),
    "what does wait --timeout do": ("wait --timeout", "gives up after S seconds (exit 5)"),
    "what if the agent is blocked while I wait for an answer": ("send", "It waits on while the agent is blocked"),
    "how do I undo stop": ("stop", "Undone by `echo start > ctl`"),
    "how do I leave backoff": ("backoff", "at once by `start`, or by `restart`"),
    "what happens when its CLI dies": ("on_lost", "Case by case: zoefs-prompts(7)"),
    "what happens when a program dies": ("when a program dies", "the CLI runs the cut turn again"),
    "which prompt does interrupt end": ("interrupt", "the one that waits longest of the prompts written before it"),
    "how do I read an answer of several lines": ("ask-and-read", "sed '1,/^$/d' r1/inbox/fix-1"),
    "can tar read the tree": ("tar", "leave them out"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_found(question: str) -> None:
    word, answer = QUESTIONS[question]
    done = CliRunner().invoke(cli, ["help", "--", *word.split()])
    assert done.exit_code == 0, done.output
    assert " ".join(answer.split()) in " ".join(done.output.split()), done.output

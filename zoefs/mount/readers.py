"""What the files of an agent say, as bytes. Pure renderings of a view; nothing here changes anything."""

from __future__ import annotations

import json
from pathlib import Path

from zoefs.contract.asks import SEPARATOR, Ask
from zoefs.contract.backends import BACKENDS, is_tested
from zoefs.contract.events import seconds, utc
from zoefs.contract.home import STEER_QUEUED
from zoefs.contract.lifecycle import Life, Spent
from zoefs.contract.spec import Spec
from zoefs.contract.words import FINAL, Status
from zoefs.disk.files import read_text, size
from zoefs.mount.view import View


def usd(spent: Spent) -> str:
    """Dollars with as many digits as mean something; `~` before what is estimated, or leaves out unpriced tokens."""
    text = f"{spent.usd:.6f}".rstrip("0").rstrip(".")
    return f"~{text}" if spent.estimated or spent.unpriced else text


def version_text(backend: str, version: str) -> str:
    """The CLI's version, and what is to be said of one that the tests do not know; empty before it told one."""
    if is_tested(backend, version):
        return version
    return f"{version} (not a tested version: {' '.join(BACKENDS[backend].versions)})"


def stat_text(view: View, supervisor: str) -> bytes:
    """`key: value` lines. `supervisor` is its health in one word."""
    f = view.fold
    lines: list[tuple[str, object]] = [
        ("status", view.status),
        ("reason", f.reason if view.status in (Status.FAILED, Status.BACKOFF) else ""),
        ("since", f.since),
        ("turn", f.turn),
        ("last_turn", f.last_turn),
        ("queued", len(view.prompts())),
        ("arriving", view.arriving),
        ("incarnation", f.inc),
        ("pid", f.pid if f.life in (Life.STARTING, Life.UP) else ""),
        ("session", f.session or read_text(view.home.session)),
        ("backend", view.spec.backend),
        ("fidelity", view.backend.fidelity),
        ("evidence", f.evidence),
        ("asks", len(f.asks)),
        ("restarts", f.restarts),
        ("cost_usd", usd(f.spent)),
        ("tokens_in", f.spent.tokens_in),
        ("tokens_out", f.spent.tokens_out),
        ("supervisor", supervisor),
        ("version", version_text(f.backend, f.version)),
    ]
    lines += [("tokens_unpriced", f.spent.unpriced)] if f.spent.unpriced else []
    lines += [("former_session", f.former_session)] if f.former_session else []
    lines += [("pending", command.encode()) for command in view.pending()]
    return "".join(f"{key}: {value}\n" for key, value in lines).encode()


def error_text(view: View) -> bytes:
    """The newer of the last refusal and the last failure: time and sentence; empty where there was none.

    Within one millisecond the refusal is the newer: it is the answer to somebody who saw the failure.
    """
    newest = (view.refusal_t, view.refusal), (view.fold.error_t, view.fold.error)
    t, text = max(newest, key=lambda one: one[0])
    return f"{t} {text}\n".encode(errors="replace") if text else b""


def session_text(view: View) -> bytes:
    """The CLI's session id and a newline; empty before there is one."""
    session = view.fold.session or read_text(view.home.session)
    return session.encode() + b"\n" if session else b""


def ask_text(view: View) -> bytes:
    """Every pending ask: what is asked, and the lines that answer it; empty where nothing is asked."""
    return "\n".join(_one_ask(ask, view.spec) for ask in view.fold.asks.values()).encode(errors="replace")


def _one_ask(ask: Ask, spec: Spec) -> str:
    given = json.dumps(ask.input, ensure_ascii=False)
    lines = [f"ask: {ask.id}", f"since: {ask.t}", f"tool: {ask.tool}", f"input: {given}"]
    if spec.ask_timeout:
        lines.append(f"expires: {utc(seconds(ask.t) + spec.ask_timeout)} {spec.ask_default}")
    for question in ask.questions:
        lines.append(f"question: {' '.join(question.text.split())}{' (several)' if question.several else ''}")
        lines += [f"choice {n}: {' '.join(choice.split())}" for n, choice in enumerate(question.choices, 1)]
    if ask.questions:
        lines.append(f"allow {ask.id} {f' {SEPARATOR} '.join('ANSWER' for _ in ask.questions)}")
    else:
        lines.append(f"choices: allow {'allow-always ' if ask.rule is not None else ''}deny")
        lines.append(f"allow {ask.id}")
        if ask.rule is not None:
            lines += [f"rule: {json.dumps(ask.rule)}", f"allow-always {ask.id}"]
    return "".join(line + "\n" for line in [*lines, f"deny {ask.id} WHY"])


def receipt_head(view: View, id: str) -> bytes:
    """The receipt lines of a prompt or keyed verb and the empty line behind them; empty where it is unknown."""
    fate = view.fate(id)
    if fate is None:
        return b""
    receipt = view.fold.receipts.get(id)
    lines: list[tuple[str, object]] = [("receipt", fate), ("id", id)]
    if receipt is not None:
        lines += [("since", receipt.t)]
        lines += [("turn", receipt.turn)] if receipt.turn else []
        lines += [("verb", receipt.verb)] if receipt.verb else []
        lines += [("note", receipt.note)] if receipt.note else []
        if receipt.spent is not None:
            lines += [("cost_usd", usd(receipt.spent))]
            lines += [("tokens_in", receipt.spent.tokens_in), ("tokens_out", receipt.spent.tokens_out)]
            lines += [("tokens_unpriced", receipt.spent.unpriced)] if receipt.spent.unpriced else []
    elif fate not in FINAL:
        ahead = view.ahead(id)
        lines += [("ahead", ahead)] if ahead is not None else []
        lines += [("note", STEER_QUEUED)] if view.is_steer(id) else []
    return "".join(f"{key}: {value}\n" for key, value in lines).encode(errors="replace") + b"\n"


def answer_of(view: View, id: str) -> Path | None:
    """The file with the answer of an ended prompt; None where there is none."""
    receipt = view.fold.receipts.get(id)
    if receipt is None or receipt.fate not in FINAL or not receipt.turn:
        return None
    return view.home.turn(receipt.turn)


def receipt_size(view: View, id: str) -> int:
    """The length of `inbox/ID`."""
    answer = answer_of(view, id)
    return len(receipt_head(view, id)) + (size(answer) if answer else 0)


LIST_HEADER = b"name\tstatus\tturn\tqueued\tbackend\tcost_usd\tsince\tcwd\n"


def list_row(view: View) -> bytes:
    """An agent's line of `agents/list`."""
    f = view.fold
    cwd = (view.spec.cwd or str(view.home.work)).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    cells = (view.name, view.status, f.turn, len(view.prompts()), view.spec.backend, usd(f.spent), f.since or "-", cwd)
    return ("\t".join(map(str, cells)) + "\n").encode()

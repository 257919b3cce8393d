"""What the files of an agent say, as bytes. Pure renderings of a view; nothing here changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from zoefs.contract.lifecycle import Life
from zoefs.contract.words import FINAL, Status
from zoefs.disk.files import read_text, size
from zoefs.mount.view import View


def usd(amount: float, estimated: bool) -> str:
    """Dollars with as many digits as mean something; `~` before an estimate."""
    text = f"{amount:.6f}".rstrip("0").rstrip(".")
    return f"~{text}" if estimated else text


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
        ("cost_usd", usd(f.cost_usd, f.cost_estimated)),
        ("tokens_in", f.tokens_in),
        ("tokens_out", f.tokens_out),
        ("supervisor", supervisor),
    ]
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
    parts = []
    for ask in view.fold.asks.values():
        parts.append(
            f"ask: {ask.id}\nsince: {ask.t}\ntool: {ask.tool}\ninput: {json.dumps(ask.input)}\nchoices: allow deny\n"
            f"allow {ask.id}\ndeny {ask.id} WHY\n"
        )
    return "\n".join(parts).encode()


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
    elif fate not in FINAL:
        ahead = view.ahead(id)
        lines += [("ahead", ahead)] if ahead is not None else []
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


LIST_HEADER = "name\tstatus\tturn\tqueued\tbackend\tcost_usd\tsince\tcwd\n"


def list_text(views: Iterable[View]) -> bytes:
    """`agents/list`: the header, and a line an agent in the order given."""
    lines = [LIST_HEADER]
    for view in views:
        f = view.fold
        cwd = (view.spec.cwd or str(view.home.work)).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
        cells = (
            view.name,
            view.status,
            f.turn,
            len(view.prompts()),
            view.spec.backend,
            usd(f.cost_usd, f.cost_estimated),
            f.since or "-",
            cwd,
        )
        lines.append("\t".join(map(str, cells)) + "\n")
    return "".join(lines).encode()

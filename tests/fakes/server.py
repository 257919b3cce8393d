"""A fake model server on loopback, so that real CLIs can be driven offline and for free; the wire is a dialect's.

Tests start one as a child with a `Fake` and assert on its log. What it answers is decided by `script`.

Rules:
- It binds 127.0.0.1 only, checks no key and keeps nothing between requests but the set that [[error1]] needs.
- The log is JSON Lines. A request is logged before its answer begins: `kind` "request", `n`, `time`, `method`, `path`,
  `headers` (names in lower case), `body` (parsed if it is JSON, else a string, null if empty).
  When the client of request n leaves before its answer is whole: `kind` "client gone", `n`, `time`.
- A pause in an answer ends when the client leaves. The stop hangs up on every client, so it ends each pause too.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.fakes import script
from tests.fakes.script import Answer, BadDirective, Body, Dialect, Failure

Entry = dict[str, Any]
Routes = Mapping[tuple[str, str], Callable[[Any, Any], None]]

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 10.0
POLL_S = 0.01
ACCEPT_POLL_S = 0.05


class Fake:
    """The server as a child process: `with OneOf(log) as fake`, then `fake.url`. `log` must not exist yet.

    A dialect's class names itself, the program to run and the path that model calls are posted to.
    """

    dialect: ClassVar[Dialect]
    program: ClassVar[str]
    calls: ClassVar[str]

    def __init__(self, log: Path) -> None:
        self.log = log
        self.url = ""
        self._entries: list[Entry] = []
        self._read = 0

    def __enter__(self) -> Self:
        command = [sys.executable, self.program, "--log", str(self.log)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_DEADLINE_S)
        word, _, port = self._process.stdout.readline().partition(" ") if ready else ("", "", "")
        if word != "PORT":
            self.__exit__(None, None, None)
            raise RuntimeError(f"the fake server {self.program} did not start")
        self.url = f"http://127.0.0.1:{int(port)}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def entries(self) -> list[Entry]:
        """The whole log up to now, both kinds; a line that is being written is left out."""
        if self.log.exists():
            with self.log.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if line.endswith(b"\n"):
                        self._entries.append(json.loads(line))
                        self._read += len(line)
        return list(self._entries)

    def requests(self) -> list[Entry]:
        """Every request up to now, in the order of arrival."""
        return [entry for entry in self.entries() if entry["kind"] == "request"]

    def turns(self) -> list[Entry]:
        """The model calls that belong to turns: a CLI's probes, titles and compactions list no tools."""
        calls = [entry for entry in self.requests() if path_of(entry["path"]) == self.calls]
        return [entry for entry in calls if isinstance(entry["body"], dict) and entry["body"].get("tools")]

    def user_texts(self, turn: Entry) -> list[str]:
        """What the user had said when this request was made, in order."""
        return script.texts(self.dialect.blocks(turn["body"]))

    def gone(self) -> list[int]:
        """The `n` of each request whose client left before the answer was whole."""
        return [entry["n"] for entry in self.entries() if entry["kind"] == "client gone"]

    def until(self, seen: Callable[[Self], bool], deadline_s: float = 60.0) -> None:
        """Return once `seen(self)` holds of the log. Raises TimeoutError after `deadline_s` seconds."""
        end = time.monotonic() + deadline_s
        while not seen(self):
            if time.monotonic() > end:
                raise TimeoutError(f"not seen in {deadline_s:g} s; the log has {len(self.entries())} entries")
            time.sleep(POLL_S)


class Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, handler: type[Handler], port: int, log: Path | None) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.stopping = False
        self._log = log.open("ab", buffering=0) if log else None
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._tried: set[tuple[str, int, str]] = set()
        self._clients: set[socket.socket] = set()

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own looks a host name up, which no test should wait for

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.discard(request)
        super().shutdown_request(request)

    def stop(self) -> None:
        """Hang up on every client and wait for the threads that served them."""
        self.stopping = True
        self.shutdown()
        with self._lock:
            for client in self._clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
        self.server_close()
        if self._log:
            self._log.close()

    def note_request(self, entry: Entry) -> int:
        """Log a request and return its number."""
        with self._lock:
            n = next(self._numbers)
            self._note("request", n, entry)
        return n

    def note_gone(self, n: int) -> None:
        with self._lock:
            self._note("client gone", n, {})

    def is_first_try(self, key: tuple[str, int, str]) -> bool:
        with self._lock:
            first = key not in self._tried
            self._tried.add(key)
        return first

    def _note(self, kind: str, n: int, entry: Entry) -> None:
        if self._log:
            self._log.write(json.dumps({"kind": kind, "n": n, "time": time.time(), **entry}).encode() + b"\n")


class Handler(BaseHTTPRequestHandler):
    """One connection. A dialect's handler names its dialect, the header that tells sessions apart, and its routes."""

    dialect: ClassVar[Dialect]
    session_header: ClassVar[str]
    routes: ClassVar[Routes]

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client may leave between two requests
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr: the log file has it all."""

    def answer(self) -> None:
        """Log the request, then answer it by `routes`."""
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode(errors="replace")
        headers = {name.lower(): value for name, value in self.headers.items()}
        n = self.server.note_request({"method": self.command, "path": self.path, "headers": headers, "body": body})
        self.serial = uuid.uuid4().hex[:20]
        self.watch = select.poll()
        self.watch.register(self.connection, select.POLLRDHUP)
        try:
            route = self.routes.get((self.command, path_of(self.path))) or Handler.not_found
            route(self, body)
        except ConnectionError:
            self.close_connection = True
            if not self.server.stopping:
                self.server.note_gone(n)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer

    def model_call(self, body: Any) -> None:
        if not isinstance(body, dict):
            return self.fail(Failure(400, "the body is not a JSON object"))
        try:
            reply = script.answer(self.dialect, body, self.is_first_try(body))
        except BadDirective as bad:
            return self.fail(Failure(400, str(bad)))
        if isinstance(reply, Failure):
            return self.fail(reply)
        if body.get("stream") is True:
            return self.stream(reply)
        self.pause(None if reply.hang else reply.slow_s)
        self.send(200, self.dialect.message(reply, self.serial))

    def is_first_try(self, body: Body) -> bool:
        session = self.headers.get(self.session_header, "")
        return self.server.is_first_try((session, *script.attempt_key(self.dialect.blocks(body))))

    def stream(self, reply: Answer) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("request-id", f"req_{self.serial}")
        self.send_header("connection", "close")
        self.end_headers()
        for seconds, event in self.dialect.events(reply, self.serial):
            self.pause(seconds)
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        if reply.hang:
            self.pause(None)

    def not_found(self, body: Any) -> None:
        self.fail(Failure(404, f"no {self.command} {path_of(self.path)} here"))

    def fail(self, failure: Failure) -> None:
        self.send(failure.status, self.dialect.error(failure))

    def send(self, status: int, value: Entry | None) -> None:
        content = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("request-id", f"req_{self.serial}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def pause(self, seconds: float | None) -> None:
        """Wait so long, None for ever. Raises ConnectionAbortedError as soon as the client is gone."""
        if self.watch.poll(None if seconds is None else math.ceil(seconds * 1000)):
            raise ConnectionAbortedError


def path_of(target: str) -> str:
    """A request's target without its query."""
    return target.partition("?")[0]


def serve(handler: type[Handler], what: str) -> None:
    """The whole program of one dialect: `[--port 0] [--log FILE]`; prints `PORT n`, serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=f"A fake {what} server on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--log", type=Path, help="append every request to this file, one JSON object a line")
    given = parser.parse_args()

    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    server = Server(handler, given.port, given.log)
    serving = threading.Thread(target=server.serve_forever, args=(ACCEPT_POLL_S,))
    serving.start()
    try:
        print(f"PORT {server.server_address[1]}", flush=True)
        signal.sigwait(stops)
    finally:
        server.stop()
        serving.join()

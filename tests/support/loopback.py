"""A real HTTP server on the loopback interface whose every answer a test writes, also those no library would send."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """`cut_after`: close the connection after so many bytes of the body. `length`: what Content-Length says ("" for no
    such header; the end of the connection then ends the body). `drop`: close without any answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    length: str | None = None
    drop: bool = False


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json", **names})


def error_reply(status: int, code: str | None = None, message: str = "no", **headers: str) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return json_reply({"error": error}, status, **headers)


@dataclass(slots=True)
class Loopback:
    """`url` is the server's address; `journal` what it was sent, in order."""

    url: str
    journal: list[Request]

    def count(self, method: str, path: str) -> int:
        return sum(1 for request in self.journal if request.method == method and request.path.startswith(path))


@contextmanager
def serving(answer: Callable[[Request], Reply]) -> Iterator[Loopback]:
    journal: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if "chunked" in self.headers.get("transfer-encoding", ""):
                body = self.chunks()
            request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            journal.append(request)
            reply = answer(request)
            self.close_connection = True
            if reply.drop:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            length = str(len(reply.body)) if reply.length is None else reply.length
            if length:
                self.send_header("content-length", length)
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(reply.body[: reply.cut_after])

        def chunks(self) -> bytes:
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        do_GET = do_POST = do_DELETE = reply  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Loopback(f"http://127.0.0.1:{server.server_address[1]}", journal)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

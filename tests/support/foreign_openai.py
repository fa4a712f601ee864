"""A server that speaks OpenAI's files and batches, and shares no code with the product or its simulator.

It keeps everything in memory, answers `/v1/responses` lines by the schema they ask for, and can carry out a create and
then answer it with a 500. `python -m tests.support.foreign_openai --port 9100 --lose 1` runs it alone; each request is
logged on stderr, and `GET /v1/batches` tells what was created.
"""

from __future__ import annotations

import argparse
import email.message
import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
ENDPOINTS = ("/v1/responses",)
STAGES = (("validating", 0.2), ("in_progress", 0.8))
"""States before `completed`, and until how many seconds after the create each lasts."""


class Refused(Exception):
    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class ForeignOpenAI:
    """The server's state. The first `lose` creates are carried out and then answered with a 500. `creates` holds the
    status with which each create was answered."""

    key: str = ""
    """The only key that is let in; "" lets any in."""
    lose: int = 0
    files: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Oldest first."""
    creates: list[int] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def store(self, name: str, purpose: str, body: bytes) -> dict[str, Any]:
        about: dict[str, Any] = {
            "id": f"file-{len(self.files) + 1:04}{hashlib.sha256(body).hexdigest()[:8]}",
            "object": "file",
            "bytes": len(body),
            "created_at": int(time.time()),
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }
        self.files[about["id"]] = about, body
        return about

    def file(self, file_id: str) -> tuple[dict[str, Any], bytes]:
        if file_id not in self.files:
            raise Refused(404, f"No such File object: {file_id}")
        return self.files[file_id]

    def delete(self, file_id: str) -> dict[str, Any]:
        self.file(file_id)
        del self.files[file_id]
        return {"id": file_id, "object": "file", "deleted": True}

    def create(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The job exists when this returns or raises a 500."""
        self.file(asked["input_file_id"])
        if asked["endpoint"] not in ENDPOINTS or asked["completion_window"] != "24h":
            raise Refused(400, "this server runs /v1/responses within 24h", "invalid_request")
        batch = {
            "id": f"batch_{len(self.batches) + 1:04}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "errors": None,
            "input_file_id": asked["input_file_id"],
            "completion_window": "24h",
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": int(time.time()),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": asked.get("metadata"),
            "_since": time.monotonic(),
        }
        self.batches[batch["id"]] = batch
        if len(self.creates) < self.lose:
            raise Refused(500, "The server had an error while processing your request")
        return self.shown(batch)

    def batch(self, batch_id: str) -> dict[str, Any]:
        if batch_id not in self.batches:
            raise Refused(404, f"No batch found with id '{batch_id}'.")
        return self.shown(self.batches[batch_id])

    def cancel(self, batch_id: str) -> dict[str, Any]:
        if self.batch(batch_id)["status"] != "completed":
            self.batches[batch_id]["status"] = "cancelled"
        return self.batch(batch_id)

    def page(self, after: str, limit: int) -> dict[str, Any]:
        newest = list(reversed(self.batches))
        begin = newest.index(after) + 1 if after else 0
        ids = newest[begin : begin + limit]
        return {
            "object": "list",
            "data": [self.batch(each) for each in ids],
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": begin + limit < len(newest),
        }

    def shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch as it is at this moment; its lines are answered when its time has come."""
        if batch["status"] not in ("cancelled", "completed"):
            age = time.monotonic() - batch["_since"]
            batch["status"] = next((state for state, until in STAGES if age < until), "completed")
            if batch["status"] == "completed":
                self._run(batch)
        return {name: value for name, value in batch.items() if not name.startswith("_")}

    def _run(self, batch: dict[str, Any]) -> None:
        _, body = self.file(batch["input_file_id"])
        asked = [json.loads(line) for line in body.split(b"\n") if line]
        # Answers come back in another order than the requests, as the API's documentation warns.
        lines = [json.dumps(_answered(request)) for request in reversed(asked)]
        batch["output_file_id"] = self.store("output.jsonl", "batch_output", "\n".join(lines).encode() + b"\n")["id"]
        batch["request_counts"] = {"total": len(lines), "completed": len(lines), "failed": 0}


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    asked = request["body"]
    text = json.dumps(_fitting(asked["text"]["format"]["schema"], asked["input"]))
    body = {
        "id": f"resp_{request['custom_id'][:16]}",
        "object": "response",
        "status": "completed",
        "model": asked["model"],
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        "usage": {"input_tokens": 50, "output_tokens": 12, "total_tokens": 62},
    }
    response = {"status_code": 200, "request_id": f"req_{request['custom_id'][:16]}", "body": body}
    return {
        "id": f"batch_req_{request['custom_id'][:16]}",
        "custom_id": request["custom_id"],
        "response": response,
        "error": None,
    }


def _fitting(schema: dict[str, Any], seed: object) -> Any:
    """A value that fits the schema; the same request always gets the same one."""
    number = int.from_bytes(hashlib.sha256(json.dumps(seed).encode()).digest()[:4], "big")
    if "enum" in schema:
        return schema["enum"][number % len(schema["enum"])]
    if schema["type"] == "object":
        return {name: _fitting(part, [seed, name]) for name, part in schema["properties"].items()}
    if schema["type"] == "number":
        return number % 100 / 100
    return f"text {number}"


def _handler(state: ForeignOpenAI, *, quiet: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = b"".join(self.received())
            url = urlsplit(self.path)
            creating = (self.command, url.path) == ("POST", "/v1/batches")
            with state.lock:
                status, reply = self.answer(url.path, parse_qs(url.query), body)
                if creating:
                    state.creates.append(status)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            kind = "application/octet-stream" if isinstance(reply, bytes) else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def received(self) -> Iterator[bytes]:
            if self.headers.get("transfer-encoding") != "chunked":
                yield self.rfile.read(int(self.headers.get("content-length", 0)))
                return
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
            try:
                if state.key and self.headers.get("authorization") != f"Bearer {state.key}":
                    raise Refused(401, "Incorrect API key provided.", "invalid_api_key")
                return 200, self.route(path.strip("/").split("/")[1:], query, body)
            except Refused as refused:
                kind = "server_error" if refused.status >= 500 else "invalid_request_error"
                error = {"message": str(refused), "type": kind, "param": None, "code": refused.code}
                return refused.status, {"error": error}

        def route(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> Any:
            match self.command, *parts:
                case "POST", "files":
                    form = _form(self.headers, body)
                    return state.store(form["file"][0], form["purpose"][1].decode(), form["file"][1])
                case "GET", "files", file_id:
                    return state.file(file_id)[0]
                case "GET", "files", file_id, "content":
                    return state.file(file_id)[1]
                case "DELETE", "files", file_id:
                    return state.delete(file_id)
                case "POST", "batches":
                    return state.create(json.loads(body))
                case "GET", "batches":
                    return state.page(query.get("after", [""])[0], int(query.get("limit", ["20"])[0]))
                case "GET", "batches", batch_id:
                    return state.batch(batch_id)
                case "POST", "batches", batch_id, "cancel":
                    return state.cancel(batch_id)
            raise Refused(404, f"Invalid URL ({self.command} {self.path})")

        do_GET = do_POST = do_DELETE = respond  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            if not quiet:
                super().log_message(format, *args)

    return Handler


def _form(headers: email.message.Message, body: bytes) -> dict[str, tuple[str, bytes]]:
    """File name and bytes of each field of a multipart form (RFC 7578)."""
    boundary = headers.get_param("boundary")
    assert isinstance(boundary, str)
    fields = {}
    for part in body.split(b"--" + boundary.encode())[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        about = email.message_from_bytes(head)
        name = about.get_param("name", header="content-disposition")
        assert isinstance(name, str)
        fields[name] = about.get_filename() or "", content.removesuffix(b"\r\n")
    return fields


@contextmanager
def foreign_openai(state: ForeignOpenAI) -> Iterator[str]:
    """The server on a port of its own; yields its base URL, `/v1` included."""
    server = ThreadingHTTPServer((HOST, 0), _handler(state, quiet=True))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A small server that speaks OpenAI's files and batches.")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument("--lose", type=int, default=0, help="answer so many creates with a 500 after carrying them out")
    given = parser.parse_args()
    server = ThreadingHTTPServer((HOST, given.port), _handler(ForeignOpenAI(lose=given.lose), quiet=False))
    sys.stderr.write(f"http://{HOST}:{given.port}/v1\n")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()

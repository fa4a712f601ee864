"""Every HTTP call that leaves this process, seen and struck at the lowest layer that all SDKs share.

boto3 sends each try of a call through `URLLib3Session.send`, the providers' SDKs through `httpx2.HTTPTransport`. What
opens a connection beside these two layers is noticed by `Wire.strays`. Nothing of ours is replaced: the SDKs' retries,
parsers and pools run as they do in production.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

R = TypeVar("R")

_ID = re.compile(r"(?:[a-z]{2,}[-_])?[0-9a-f]{12,}|(?<=%2F)[0-9a-z]{12}\b")
_S3 = re.compile(r"[A-Z]+ /line\b")
_READS = re.compile(r"(?:Get|BatchGet|Query|Describe|List)")
_OTHERS = ("simulator", "asyncio_", "AnyIO")
"""Threads of a simulator that runs in this process."""


class Killed(BaseException):
    """The process died here. No `except Exception` hears of it."""


class Fault(StrEnum):
    BEFORE = "before"
    """The process dies before the call is sent."""
    AFTER = "after"
    """It dies after the call was carried out, before its reply is seen."""
    LOST = "lost"
    """The call is carried out and its reply times out; the SDK does what it does then."""
    SILENT = "silent"
    """As LOST, and so do all repetitions of the call in the same invocation: the SDK gives up."""


KILLS = frozenset({Fault.BEFORE, Fault.AFTER})


Where = tuple[int, int]
"""Of a call: which state of the workflow makes it, counted from 0, and the how manieth call of an invocation it is."""


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request of a task. `label` names it without the ids in it; `origin` is scheme, host and port."""

    where: Where
    task: str
    label: str
    origin: str
    writes: bool
    made_job: bool = False
    """A provider's job exists since this call."""

    @property
    def of_ledger(self) -> bool:
        return self.label.startswith("DynamoDB ")

    @property
    def of_s3(self) -> bool:
        return _S3.match(self.label) is not None


@dataclass
class Wire:
    """Counts calls while a task runs, and strikes those in `plan`, each once."""

    plan: dict[Where, Fault] = field(default_factory=dict)
    jobs_made: Callable[[], int] | None = None
    """How many jobs the providers have made so far; asked around every call where it is set."""
    calls: list[Call] = field(default_factory=list)
    struck: list[Call] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """Connections that were opened by a task outside the counted layers."""
    _task: str = ""
    _state: int = -1
    _index: int = 0
    _dead: bool = False
    _silent: str = ""
    _repeats: dict[int, str] = field(default_factory=dict)
    """By thread: the call whose repetition by the SDK comes next."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _inside: threading.local = field(default_factory=threading.local)

    def begin(self, plan: Mapping[Where, Fault], jobs_made: Callable[[], int] | None = None) -> None:
        """A new run."""
        self.plan, self.jobs_made = dict(plan), jobs_made
        self.calls, self.struck, self.strays = [], [], []
        self._state = -1

    def enter_state(self) -> None:
        """The workflow comes to its next state; all invocations of the task that follow are this state's."""
        self._state += 1

    @contextmanager
    def armed(self, task: str) -> Iterator[None]:
        """One invocation of a task."""
        self._task, self._index, self._dead, self._silent, self._repeats = task, 0, False, "", {}
        try:
            yield
        finally:
            self._task = ""

    @contextmanager
    def installed(self) -> Iterator[Wire]:
        """From here on all SDKs of this process pass the wire."""
        send, handle = URLLib3Session.send, httpx2.HTTPTransport.handle_request

        def aws(session: URLLib3Session, request: AWSPreparedRequest) -> AWSResponse:
            label, writes = _aws_label(request)
            timeout = ReadTimeoutError(endpoint_url=request.url)
            return self._pass(label, writes, str(request.url), lambda: send(session, request), timeout, _close_aws)

        def provider(transport: httpx2.HTTPTransport, request: httpx2.Request) -> httpx2.Response:
            label = f"{request.method} {_shape(request.url.path)}"
            timeout = httpx2.ReadTimeout("timed out", request=request)
            return self._pass(
                label,
                request.method not in ("GET", "HEAD"),
                str(request.url),
                lambda: handle(transport, request),
                timeout,
                lambda reply: reply.close(),
            )

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(URLLib3Session, "send", aws)
            patch.setattr(httpx2.HTTPTransport, "handle_request", provider)
            _audit(self)
            try:
                yield self
            finally:
                _audit(None)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What this thread does meanwhile is the test's own."""
        outer = getattr(self._inside, "wire", False)
        self._inside.wire = True
        try:
            yield
        finally:
            self._inside.wire = outer

    def connected(self, address: object) -> None:
        """A socket of this thread connects."""
        if self._task and not getattr(self._inside, "wire", False) and not _of_simulator():
            self.strays.append(f"{self._task} {address}")

    def _pass(
        self,
        label: str,
        writes: bool,
        url: str,
        send: Callable[[], R],
        timeout: Exception,
        close: Callable[[R], object],
    ) -> R:
        if not self._task or _of_simulator():
            with self.aside():  # another thread's task may begin meanwhile
                return send()
        fault = self._count(label, writes, url)
        if fault is Fault.BEFORE:
            raise self._die()
        before = self.jobs_made() if self.jobs_made else 0
        with self.aside():
            reply = send()
        if self.jobs_made and self.jobs_made() > before:
            with self._lock:
                self.calls[-1] = replace(self.calls[-1], made_job=True)
        if fault is None:
            return reply
        close(reply)
        raise self._die() if fault is Fault.AFTER else timeout

    def _count(self, label: str, writes: bool, url: str) -> Fault | None:
        """The fault that hits this call. A dead process sends nothing: its other threads, and what its `finally`
        blocks would still do, end here too. What the SDK sends again has no place of its own in the count."""
        with self._lock:
            if self._dead:
                raise Killed(label)
            parts, thread = urlsplit(url), threading.get_ident()
            where = (self._state, self._index)
            self.calls.append(Call(where, self._task, label, f"{parts.scheme}://{parts.netloc}", writes))
            if self._repeats.pop(thread, "") == label:
                fault = Fault.LOST if label == self._silent else None
            else:
                self._index += 1
                fault = self.plan.pop(where, None)
                if fault:
                    self.struck.append(self.calls[-1])
            if fault is Fault.SILENT:
                self._silent = label
            if fault not in (None, *KILLS):
                self._repeats[thread] = label
            return fault

    def _die(self) -> Killed:
        self._dead = True
        return Killed("the process is gone")


def _aws_label(request: AWSPreparedRequest) -> tuple[str, bool]:
    target = request.headers.get("X-Amz-Target", "")
    if target := target.decode() if isinstance(target, bytes) else target:
        service, _, operation = target.rpartition(".")
        return f"{service.split('_')[0]} {operation}", _READS.match(operation) is None
    method = str(request.method)
    return f"{method} {_shape(urlsplit(str(request.url)).path)}", method not in ("GET", "HEAD")


def _shape(path: str) -> str:
    return _ID.sub("*", path)


def _close_aws(reply: AWSResponse) -> None:
    reply.raw.close()


def _of_simulator() -> bool:
    return threading.current_thread().name.startswith(_OTHERS)


_audited: list[Wire] = []
_hooked = False


def _audit(wire: Wire | None) -> None:
    """Tell `wire` of every connection that Python opens. An audit hook cannot be removed, so one serves all."""
    global _hooked
    _audited[:] = [wire] if wire else []
    if not _hooked:
        _hooked = True
        sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        for wire in _audited:
            wire.connected(arguments[1])

"""Serves the app with uvicorn, in the foreground or in a thread, and lets a fault close a connection without a word."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from infra.local.simulator.app import create_app
from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.core import Core
from infra.local.simulator.guard import HANG_UP
from infra.local.simulator.scenario import Scenario, load_scenario
from infra.local.simulator.store import Store


class HangUpProtocol(H11Protocol):
    """Offers each request a way to close its connection: ASGI itself has none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        inner: ASGIApp = self.app

        async def with_hang_up(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})[HANG_UP] = self._hang_up
            await inner(scope, receive, send)

        self.app = with_hang_up

    def _hang_up(self, flush: bool) -> None:
        if flush:
            self.transport.close()
        else:
            self.transport.abort()


def uvicorn_server(core: Core) -> uvicorn.Server:
    config = uvicorn.Config(
        create_app(core),
        http=HangUpProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def listening_socket(host: str, port: int) -> socket.socket:
    """Bound and listening, so that a client may connect before the loop runs; port 0 takes a free one.

    asyncio switches Nagle's delay off only where the protocol is named.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(128)
    return listener


class SimulatorServer:
    """A simulator in a thread of this process, as a context manager: `with SimulatorServer("calm") as simulator`.

    `url` is the root, `openai_base_url` and `gemini_base_url` are what clients of those providers take as base URL,
    `bedrock_endpoint_url` is what boto3 takes for Bedrock, whose files are in `store`; `control` is the control API.
    """

    def __init__(
        self,
        scenario: Scenario | str = "calm",
        *,
        clock_scale: float = 1.0,
        journal_dir: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        store: Store | None = None,
    ) -> None:
        loaded = load_scenario(scenario) if isinstance(scenario, str) else scenario
        self.core = Core(loaded, clock_scale=clock_scale, journal_dir=journal_dir, store=store)
        self._listener = listening_socket(host, port)
        self.url = f"http://{host}:{self._listener.getsockname()[1]}"
        self.openai_base_url = f"{self.url}/openai/v1"
        self.bedrock_endpoint_url = f"{self.url}/bedrock"
        self.gemini_base_url = f"{self.url}/gemini"
        self.control = SimulatorControl(self.url)
        self._server = uvicorn_server(self.core)
        self._thread = threading.Thread(target=self._run, name="simulator", daemon=True)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    def __enter__(self) -> SimulatorServer:
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the simulator did not start on {self.url}")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._listener.close()

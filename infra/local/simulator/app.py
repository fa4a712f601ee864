"""The ASGI app: each provider under its name, the control API under `/_sim`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from infra.local.simulator.bedrock.routes import BedrockSimulator
from infra.local.simulator.core import Core, ProviderSimulator
from infra.local.simulator.gemini.routes import GeminiSimulator
from infra.local.simulator.openai.routes import OpenAISimulator
from infra.local.simulator.scenario import load_scenario, parse_scenario
from tallybatch.domain.errors import BadInput

TICK_S = 0.05
"""How often due events fire while nobody calls, in real seconds."""


def create_app(core: Core) -> Starlette:
    providers: list[ProviderSimulator] = [OpenAISimulator(core), BedrockSimulator(core), GeminiSimulator(core)]
    control = Control(core, providers)

    @contextlib.asynccontextmanager
    async def ticking(_: Starlette) -> AsyncIterator[None]:
        ticker = asyncio.create_task(_tick(core))
        yield
        ticker.cancel()

    mounts = [Mount(f"/{provider.name}", routes=provider.routes()) for provider in providers]
    return Starlette(routes=[*mounts, Mount("/_sim", routes=control.routes())], lifespan=ticking)


async def _tick(core: Core) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        core.clock.run_due()


class Control:
    """What no provider has: health, journal, clock and scenario of the simulator itself."""

    def __init__(self, core: Core, providers: list[ProviderSimulator]) -> None:
        self._core = core
        self._providers = providers

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/journal", self.journal, methods=["GET"]),
            Route("/reset", self.reset, methods=["POST"]),
            Route("/scenario", self.show_scenario, methods=["GET"]),
            Route("/scenario", self.put_scenario, methods=["PUT"]),
            Route("/clock/advance", self.advance, methods=["POST"]),
        ]

    async def health(self, _: Request) -> Response:
        return _json(
            {
                "status": "ok",
                "scenario": self._core.scenario.name,
                "time": self._core.clock.now(),
                "clock_scale": self._core.clock.scale,
                "providers": [provider.name for provider in self._providers],
            }
        )

    async def journal(self, _: Request) -> Response:
        self._core.clock.run_due()
        batches: dict[str, Any] = {}
        for provider in self._providers:
            batches |= provider.jobs()
        struck = dict(self._core.faults.struck)
        return _json({**self._core.journal.summary(), "record_faults": struck, "batches": batches})

    async def reset(self, _: Request) -> Response:
        self._core.clock.reset()
        self._core.journal.clear()
        self._core.load(self._core.scenario)
        for provider in self._providers:
            provider.reset()
        return _json({"status": "ok"})

    async def show_scenario(self, _: Request) -> Response:
        return _json(self._core.scenario.model_dump(mode="json"))

    async def put_scenario(self, request: Request) -> Response:
        """`?name=` takes a shipped scenario; else the body is YAML (or JSON) and `?source=` names it in errors."""
        try:
            if "name" in request.query_params:
                scenario = load_scenario(request.query_params["name"])
            else:
                text = (await request.body()).decode("utf-8", "replace")
                scenario = parse_scenario(text, source=request.query_params.get("source", "scenario"))
        except BadInput as error:
            return _json({"message": str(error)}, status=400)
        self._core.load(scenario)
        return _json({"scenario": scenario.name})

    async def advance(self, request: Request) -> Response:
        try:
            document = orjson.loads(await request.body())
            self._core.clock.advance(float(document["seconds"]))
        except (ValueError, TypeError, KeyError) as error:
            return _json({"message": f'the body is {{"seconds": number of 0 or more}}: {error}'}, status=400)
        return _json({"time": self._core.clock.now()})


def _json(document: Any, *, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status_code=status, media_type="application/json")

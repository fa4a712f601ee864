"""Where each provider's HTTP calls pass: the clock catches up, the call's fault strikes, an answer goes out or none."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infra.local.simulator.core import Core
from infra.local.simulator.scenario import Call, CallRule, split_fault

HANG_UP = "tallybatch.hang_up"
"""In an ASGI scope's `extensions`: closes the connection; True lets what is written go out first."""

Handler = Callable[[Request], Awaitable[Response]]
FaultReply = Callable[[int, dict[str, str]], Response]


class HangUp(Response):
    """Not an answer: the connection closes, after half of `body` if there is one."""

    def __init__(self, body: Response | None = None) -> None:
        super().__init__()
        self._half = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hang_up = scope["extensions"][HANG_UP]
        if self._half is not None:
            await send(
                {"type": "http.response.start", "status": self._half.status_code, "headers": self._half.raw_headers}
            )
            data = bytes(self._half.body)
            await send({"type": "http.response.body", "body": data[: len(data) // 2], "more_body": True})
        hang_up(self._half is not None)
        while (await receive())["type"] != "http.disconnect":
            pass


async def guarded(
    core: Core, provider: str, kind: Call, handler: Handler, request: Request, fault: FaultReply
) -> Response:
    """Run `handler` under the scenario's call rules. `fault(status, headers)` is an error in the provider's shape."""
    core.clock.run_due()
    core.journal.calls[f"{provider}.{kind}"] += 1
    rule = core.faults.call(provider, kind)
    if rule is None:
        return await handler(request)
    name, argument = split_fault(rule.fault)
    core.journal.faults[f"{provider}.{kind}.{name}"] += 1
    if name == "drop_before":
        return HangUp()
    if name == "status":
        return fault(int(argument), _retry_headers(rule))
    if name == "delay_s":
        await request.body()  # read it while the client is still there: a client that gives up must not undo the call
        await asyncio.sleep(float(argument))
        core.clock.run_due()
    request.state.empty_page = name == "empty_page"
    request.state.strangers = int(argument) if name == "strangers" else 0
    answer = await handler(request)
    if name == "late_reply_s":
        await asyncio.sleep(float(argument))
    if name == "lost_reply":
        return HangUp()
    if name == "cut_body":
        return HangUp(answer)
    if name == "garbled_body":
        sound = bytes(answer.body)[: len(bytes(answer.body)) * 2 // 3]
        answer.body = sound.ljust(len(bytes(answer.body)), b"\0")
    if name == "reply_500_after":
        return fault(500, _retry_headers(rule))
    return answer


def _retry_headers(rule: CallRule) -> dict[str, str]:
    headers = {}
    if rule.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(rule.retry_after_s))
        headers["retry-after-ms"] = str(round(rule.retry_after_s * 1000))
    if rule.should_retry is not None:
        headers["x-should-retry"] = "true" if rule.should_retry else "false"
    return headers

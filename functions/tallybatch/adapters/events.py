"""The port Events on an EventBridge bus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tallybatch.adapters.aws_errors import BUSY_CODES, calling
from tallybatch.domain.errors import Permanent, Retryable

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

SOURCE = "tallybatch"


class EventBridgeEvents:
    """`bus` is a bus name or ARN; each event carries `source` and has its kind as detail-type."""

    def __init__(self, client: EventBridgeClient, bus: str, *, source: str = SOURCE) -> None:
        self._client = client
        self._bus = bus
        self._source = source

    def publish(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Raises `Retryable` if the bus may take it later, `Permanent` if it refused the entry. PutEvents answers 200
        for entries that it refused: only FailedEntryCount tells (EventBridge API reference, PutEvents)."""
        where = f"event {kind} on bus {self._bus}"
        entry = {
            "Source": self._source,
            "DetailType": kind,
            "Detail": msgspec.json.encode(detail).decode(),
            "EventBusName": self._bus,
        }
        with calling(where):
            reply = self._client.put_events(Entries=[entry])  # type: ignore[list-item]
        if reply["FailedEntryCount"]:
            refused = reply["Entries"][0]
            code = refused.get("ErrorCode", "")
            transient = code in BUSY_CODES
            raise (Retryable if transient else Permanent)(
                "the bus did not take the event",
                where=where,
                why=f"{code}: {refused.get('ErrorMessage', '')}",
                do="the same call may be repeated later" if transient else "check the bus's name and its policy",
            )

"""Logger, metrics, and the one decorator that every handler wears. Ids and counts only: never a record, never a key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from tallybatch.domain.errors import TallybatchError
from tallybatch.settings import Settings

NAMESPACE = "Tallybatch"
JOB_AGE = "JobAge"
RECORD_METRICS = {"succeeded": "RecordsSucceeded", "reused": "RecordsReused"}
RECORDS_OPEN = "RecordsNotAccepted"
"""Records of a shard without an accepted answer after an attempt: they are tried again, or fail by name."""
_IDS = ("tenant", "job_key", "attempt", "shard_id")

logger = Logger(service="tallybatch", log_uncaught_exceptions=False)
metrics = Metrics(namespace=NAMESPACE, service="tallybatch")

S = TypeVar("S", bound=Settings)
Event = dict[str, Any]
Handler = Callable[[Event, Any], Any]


def observed(model: type[S]) -> Callable[[Callable[[Event, S], Any]], Handler]:
    """Give a handler its settings, and log one line per call: which function, which ids, how it ended, how long."""

    def decorate(work: Callable[[Event, S], Any]) -> Handler:
        loaded: list[S] = []

        @wraps(work)
        def handler(event: Event, context: Any) -> Any:
            if not loaded:
                loaded.append(model.load())
            ids = _ids(event) | {"request_id": getattr(context, "aws_request_id", "")}
            began = time.monotonic()
            try:
                reply = work(event, loaded[0])
            except Exception as error:
                logger.warning(model.function, extra=ids | _failure(error) | {"duration_s": _since(began)})
                raise
            logger.info(model.function, extra=ids | _counts(reply) | {"duration_s": _since(began)})
            return reply

        return handler

    return decorate


def emit(function: str, *, counts: Mapping[str, float], age_s: float | None = None) -> None:
    """EMF metrics with the function as their one dimension: counts, and `JobAge` in seconds where a job ended."""
    metrics.add_dimension(name="function", value=function)
    for name, value in counts.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)
    if age_s is not None:
        metrics.add_metric(name=JOB_AGE, unit=MetricUnit.Seconds, value=age_s)
    metrics.flush_metrics()


def _ids(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in _IDS if name in event}


def _failure(error: Exception) -> dict[str, Any]:
    """Our own errors are written to be read; of others only the kind, for their words may hold anything."""
    known = isinstance(error, TallybatchError)
    return {"error": type(error).__name__, "reason": str(error)[:500] if known else ""}


def _counts(reply: Any) -> dict[str, Any]:
    """Ids too: what a file in the inbox has become is known at the end only. Of a list, how long it is."""
    if not isinstance(reply, dict):
        return {}
    told = {name: len(value) if isinstance(value, list) else value for name, value in reply.items()}
    return {name: value for name, value in told.items() if isinstance(value, int | str)}


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)

"""Replies of any provider about its jobs: when they count, and when they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallybatch.adapters.providers.common.failures import create_unknown
from tallybatch.domain.errors import ProviderUnavailable
from tallybatch.ports import ProviderJob, ProviderState

GONE_LOOKS = 3
"""How often "no such job" must be heard before it counts: GONE is terminal, and its records are paid for again."""
GONE_PAUSE_S = 1.0

_T = TypeVar("_T")


class NoSuchJob(Exception):
    """The API itself says that there is no such job, in these bytes."""

    def __init__(self, heard: bytes) -> None:
        super().__init__("there is no such job")
        self.heard = heard


def present_or_gone(
    provider_job_id: str, look: Callable[[], ProviderJob], *, raw_state: str, sleep: Callable[[float], None]
) -> ProviderJob:
    """The job as `look` finds it, or GONE, in the provider's words `raw_state`, after three looks, seconds apart, that
    all end in `NoSuchJob`."""
    heard = b""
    for pauses in range(GONE_LOOKS):
        if pauses:
            sleep(GONE_PAUSE_S * pauses)
        try:
            return look()
        except NoSuchJob as absent:
            heard = absent.heard
    return ProviderJob(id=provider_job_id, state=ProviderState.GONE, raw_state=raw_state, marker="", raw=heard)


def created_job(
    raw: bytes, read_job: Callable[[bytes], ProviderJob], *, submission_key: str, where: str
) -> ProviderJob:
    """The job that a successful create tells of. Raises `CreateUnknown` for any answer but one about our own job."""
    try:
        job = read_job(raw)
    except (ValueError, RecursionError):
        raise create_unknown(where, "the answer is no batch object") from None
    if job.marker not in ("", submission_key):
        raise create_unknown(where, "the answer describes another submission")
    return job


def read(provider: str, raw: bytes, parse: Callable[[bytes], _T], where: str) -> _T:
    """What `parse` makes of a reply. Raises `ProviderUnavailable` where it cannot: the same call may be answered
    better."""
    try:
        return parse(raw)
    except (ValueError, RecursionError):
        raise ProviderUnavailable(
            f"{provider}'s answer cannot be read", where=where, do="repeat the call later"
        ) from None


def not_its_own(provider: str, where: str) -> ProviderUnavailable:
    """For a 404 from a gateway or another server."""
    return ProviderUnavailable(
        f"a 404 that is not {provider}'s own answer", where=where, do="check the base URL and proxies"
    )

"""Waiting for quota, or for the turn of a job, within Step Functions' limits; computed from the definition."""

from __future__ import annotations

from msgspec.structs import replace

from tallybatch.domain.quota_rows import Amount, Hold
from tallybatch.domain.quotas import pause_s
from tests.workflow import test_definition as machine


def _waits_in(seconds: float) -> int:
    """How often one asks for quota that comes after so long."""
    hold = Hold(
        pool="openai",
        model="m",
        tenant="t",
        job_key="j",
        attempt=1,
        shard_id="s",
        rank=1,
        amount=Amount(jobs=1),
        asked_at=0,
    )
    asked, now = 0, 0
    while now < seconds:
        now += pause_s(hold, now, 1)
        asked += 1
        hold = replace(hold, near=asked)
    return asked


def test_a_week_of_waiting_for_quota_and_a_week_of_polling_fit_into_one_childs_history() -> None:
    waiting = machine._path(machine.CHILD, "ReserveQuota", "ReserveQuota", {"HasQuota": "WaitForQuota"})
    assert waiting == ["ReserveQuota", "HasQuota", "WaitForQuota"]
    polling = machine._path(machine.CHILD, "WaitForProvider", "WaitForProvider", {"IsTerminal": "WaitForProvider"})
    total = (
        machine.START_AND_END
        + _waits_in(machine.WEEK_S) * machine._events(machine.CHILD, waiting)
        + machine._events_of_settling()
        + machine._polls_in(machine.WEEK_S) * machine._events(machine.CHILD, polling)
    )
    assert 18_000 < total < machine.HISTORY_LIMIT, total


def test_a_week_of_waiting_to_begin_fits_into_the_parents_history() -> None:
    loop = machine._path(machine.PARENT, "AdmitJob", "AdmitJob", {"IsAdmitted": "WaitForTurn"})
    assert loop == ["AdmitJob", "IsAdmitted", "WaitForTurn"]
    assert _waits_in(machine.WEEK_S) * machine._events(machine.PARENT, loop) < 0.6 * machine.HISTORY_LIMIT


def test_quota_that_was_refused_is_reserved_anew() -> None:
    assert machine._path(machine.CHILD, "SubmitShard", "ReserveQuota", {"WasSubmitted": "WaitForQuota"})
    assert machine._path(machine.CHILD, "PollShard", "ReserveQuota", {"IsTerminal": "WaitForQuota"})

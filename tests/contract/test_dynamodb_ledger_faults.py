"""DynamoDBLedger when replies get lost or the table throttles; the faults strike at HTTP level."""

from __future__ import annotations

from typing import Any

import pytest

from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.adapters.dynamodb_records import MAX_ROUNDS
from tallybatch.domain.errors import LedgerBusy, Permanent
from tallybatch.ports import ClaimOutcome
from tests.support.emulated import Emulated
from tests.support.faults import Answer, LostReply, sdk_repeats_at_once
from tests.support.rows import answer, claim, hexdigest, job, submission


class Bench:
    def __init__(self, emulator: str, *, attempts: int = 3) -> None:
        self.emulated = Emulated(emulator, attempts=attempts)
        self.client = self.emulated.dynamodb()
        self.table = self.emulated.new_table()
        self.pauses: list[float] = []
        self.ledger = DynamoDBLedger(self.client, self.table, workers=1, sleep=self.pauses.append)
        self.calls: dict[str, int] = {}
        self.client.meta.events.register_first("before-call.dynamodb", self._count)

    def rival(self) -> DynamoDBLedger:
        return DynamoDBLedger(self.emulated.shared_dynamodb, self.table)

    def _count(self, model: Any, **_: Any) -> None:
        self.calls[model.name] = self.calls.get(model.name, 0) + 1


@pytest.fixture(autouse=True)
def no_pauses_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk_repeats_at_once(monkeypatch)


@pytest.fixture
def bench(emulator: str) -> Bench:
    return Bench(emulator)


def errors(code: str, only: int | None = None) -> Any:
    """An answer in which each statement (or the first `only`) failed with `code`; the rest is missing."""

    def make(request: dict[str, Any]) -> dict[str, Any]:
        statements = request["Statements"][:only]
        return {"Responses": [{"Error": {"Code": code, "Message": "by the test"}} for _ in statements]}

    return make


def test_a_job_whose_reply_was_lost_is_created_and_moved(bench: Bench) -> None:
    lost = LostReply(times=2)
    lost.on(bench.client, "dynamodb", "PutItem")
    first = bench.ledger.put_job(job(), expected_version=None)
    assert lost.count == 2
    assert first is not None
    LostReply().on(bench.client, "dynamodb", "PutItem")
    second = bench.ledger.put_job(job(reason="moved"), expected_version=1)
    assert second is not None
    assert bench.ledger.job(first.job_key) == second


def test_a_submission_whose_reply_was_lost_is_ours_and_a_rivals_is_not(bench: Bench) -> None:
    lost = LostReply()
    lost.on(bench.client, "dynamodb", "PutItem")
    assert bench.ledger.put_submission(submission(owner="me"), expected_version=None) is not None
    assert lost.count == 1
    assert bench.rival().put_submission(submission(owner="me"), expected_version=None) is None


def test_a_lost_reply_after_which_a_rival_moved_on_is_not_claimed_as_a_win(bench: Bench) -> None:
    def move_on() -> None:
        assert bench.rival().put_submission(submission(owner="rival"), expected_version=1) is not None

    lost = LostReply(then=move_on)
    lost.on(bench.client, "dynamodb", "PutItem")
    assert bench.ledger.put_submission(submission(owner="me"), expected_version=None) is None
    stored = bench.ledger.submission(hexdigest("job"), 1, "shard")
    assert stored is not None
    assert (stored.owner, stored.version) == ("rival", 2)


def test_a_pin_whose_reply_was_lost_is_pinned(bench: Bench) -> None:
    lost = LostReply()
    lost.on(bench.client, "dynamodb", "PutItem")
    assert bench.ledger.pin("prompt", "k", "mine") == "mine"
    assert lost.count == 1


def test_claims_accepts_and_take_overs_whose_replies_were_lost_are_ours(bench: Bench) -> None:
    names = [f"r{n}" for n in range(30)]
    lost = LostReply()
    lost.on(bench.client, "dynamodb", "BatchExecuteStatement")
    claimed = bench.ledger.claim_records([claim(name, "a") for name in names])
    assert [result.outcome for result in claimed] == [ClaimOutcome.MINE] * 30
    lost_again = LostReply()
    lost_again.on(bench.client, "dynamodb", "BatchExecuteStatement")
    taken = bench.ledger.take_over_records([claim(name, "b") for name in names], from_job=hexdigest("a"))
    assert [result.outcome for result in taken] == [ClaimOutcome.MINE] * 30
    lost_at_last = LostReply()
    lost_at_last.on(bench.client, "dynamodb", "BatchExecuteStatement")
    assert list(bench.ledger.accept_records([answer(name, "b") for name in names])) == [True] * 30
    assert (lost.count, lost_again.count, lost_at_last.count) == (1, 1, 1)


@pytest.mark.parametrize(
    "code",
    [
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "TransactionConflict",
        "InternalServerError",
        "RequestLimitExceeded",
    ],
)
@pytest.mark.parametrize("only", [None, 10, 0])
def test_statements_that_were_not_carried_out_are_repeated_until_none_is_left(
    bench: Bench, code: str, only: int | None
) -> None:
    names = [f"r{n}" for n in range(60)]
    Answer(200, errors(code, only), times=4).on(bench.client, "dynamodb", "BatchExecuteStatement")
    results = bench.ledger.claim_records([claim(name) for name in names])
    assert [result.outcome for result in results] == [ClaimOutcome.MINE] * 60
    assert len(bench.ledger.records([hexdigest(name) for name in names])) == 60
    assert len(bench.pauses) == 4
    assert all(0 < pause <= 5 for pause in bench.pauses)


def test_an_answer_without_responses_is_an_answer_that_carried_out_nothing(bench: Bench) -> None:
    Answer(200, {}, times=2).on(bench.client, "dynamodb", "BatchExecuteStatement")
    (result,) = bench.ledger.claim_records([claim("r1")])
    assert result.outcome is ClaimOutcome.MINE
    assert hexdigest("r1") in bench.ledger.records([hexdigest("r1")])


def test_a_table_that_takes_nothing_makes_the_ledger_busy(bench: Bench) -> None:
    throttled = Answer(200, errors("ThrottlingError"), times=1000)
    throttled.on(bench.client, "dynamodb", "BatchExecuteStatement")
    with pytest.raises(LedgerBusy, match="25 of 25"):
        bench.ledger.claim_records([claim(f"r{n}") for n in range(30)])
    assert throttled.count == MAX_ROUNDS
    assert bench.pauses[-1] > bench.pauses[0]


def test_a_whole_call_that_is_refused_for_load_or_breaks_is_repeated_by_us_after_the_sdk_gave_up(
    emulator: str,
) -> None:
    bench = Bench(emulator, attempts=1)
    fault = {"__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException", "message": "slow down"}
    Answer(400, fault, times=2).on(bench.client, "dynamodb", "BatchExecuteStatement")
    (result,) = bench.ledger.claim_records([claim("r1")])
    assert result.outcome is ClaimOutcome.MINE
    LostReply(times=2).on(bench.client, "dynamodb", "BatchExecuteStatement")
    assert list(bench.ledger.accept_records([answer("r1")])) == [True]
    assert len(bench.pauses) == 4


def test_a_statement_that_is_wrong_is_permanent(bench: Bench) -> None:
    Answer(200, errors("ValidationError")).on(bench.client, "dynamodb", "BatchExecuteStatement")
    with pytest.raises(Permanent, match="ValidationError: by the test"):
        bench.ledger.claim_records([claim("r1")])


def test_single_writes_that_are_throttled_for_ever_make_the_ledger_busy(emulator: str) -> None:
    bench = Bench(emulator, attempts=1)
    Answer(400, {"__type": "x#ProvisionedThroughputExceededException"}).on(bench.client, "dynamodb", "PutItem")
    with pytest.raises(LedgerBusy, match="JOB#"):
        bench.ledger.put_job(job(), expected_version=None)
    Answer(500, {"__type": "x#InternalServerError"}).on(bench.client, "dynamodb", "Query")
    with pytest.raises(LedgerBusy, match="jobs"):
        list(bench.ledger.jobs())


def test_keys_that_were_not_read_are_read_again(bench: Bench) -> None:
    names = [f"r{n}" for n in range(130)]
    bench.ledger.claim_records([claim(name) for name in names])

    def unprocessed(request: dict[str, Any]) -> dict[str, Any]:
        return {"Responses": {bench.table: []}, "UnprocessedKeys": request["RequestItems"]}

    Answer(200, unprocessed, times=3).on(bench.client, "dynamodb", "BatchGetItem")
    assert len(bench.ledger.records([hexdigest(name) for name in names])) == 130
    assert len(bench.pauses) == 3


def test_a_claim_and_an_accept_cost_one_statement_in_25_per_call(bench: Bench) -> None:
    names = [f"r{n}" for n in range(100)]
    bench.ledger.claim_records([claim(name) for name in names])
    bench.ledger.accept_records([answer(name) for name in names])
    assert bench.calls == {"BatchExecuteStatement": 8}
    bench.ledger.claim_records([claim(name) for name in names])
    assert bench.calls == {"BatchExecuteStatement": 12, "BatchGetItem": 1}


def test_jobs_come_from_all_pages_of_the_index(bench: Bench) -> None:
    for number in range(12):
        row = job(f"j{number}", created_at=1_700_000_000.0 + number, reason="x" * 200_000)
        bench.ledger.put_job(row, expected_version=None)
    bench.calls.clear()
    assert [row.job_key for row in bench.ledger.jobs()] == [hexdigest(f"j{n}") for n in reversed(range(12))]
    assert bench.calls["Query"] >= 3
    (found,) = bench.ledger.jobs_with_prefix(hexdigest("j0")[:12])
    assert found.job_key == hexdigest("j0")

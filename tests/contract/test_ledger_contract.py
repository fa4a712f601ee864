"""What every implementation of Ledger does: the in-memory twin, and DynamoDBLedger on the emulator."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.rows import NOBODY, Evidence, RecordClaim, RecordRow
from tallybatch.ports import ClaimOutcome, Ledger
from tests.support.rows import answer, claim, hexdigest, job, submission

MINE, ACCEPTED, FOREIGN = ClaimOutcome.MINE, ClaimOutcome.ACCEPTED, ClaimOutcome.FOREIGN


def outcomes(ledger: Ledger, *names: str, by: str, attempt: int = 1) -> list[ClaimOutcome]:
    return [result.outcome for result in ledger.claim_records([claim(name, by, attempt) for name in names])]


def test_a_job_is_created_once_and_read_back_whole(ledger: Ledger) -> None:
    assert ledger.job(hexdigest("job")) is None
    wanted = job(
        version=77,
        counts={"succeeded": 3, "in_review": 0},
        deadline_at=1_700_000_500.5,
        reason="größer · 東京",
        expected=3,
    )
    stored = ledger.put_job(wanted, expected_version=None)
    assert stored == msgspec.structs.replace(wanted, version=1)
    assert ledger.job(wanted.job_key) == stored
    assert ledger.put_job(wanted, expected_version=None) is None


def test_a_job_moves_only_from_the_version_that_was_seen(ledger: Ledger) -> None:
    first = ledger.put_job(job(), expected_version=None)
    assert first is not None
    second = ledger.put_job(msgspec.structs.replace(first, state=JobState.VALIDATED), expected_version=1)
    assert second is not None
    assert (second.version, second.state) == (2, JobState.VALIDATED)
    assert ledger.put_job(msgspec.structs.replace(first, state=JobState.FAILED), expected_version=1) is None
    assert ledger.put_job(job("never written"), expected_version=1) is None
    assert ledger.job(first.job_key) == second


def test_fields_set_back_to_their_default_are_gone(ledger: Ledger) -> None:
    ledger.put_job(job(reason="waiting", counts={"missing": 1}), expected_version=None)
    stored = ledger.put_job(job(), expected_version=1)
    found = ledger.job(hexdigest("job"))
    assert stored == found
    assert found is not None
    assert (found.reason, found.counts) == ("", {})


def test_a_submission_is_read_back_whole(ledger: Ledger) -> None:
    wanted = submission(
        attempt=2,
        state=SubmissionState.SUBMIT_UNKNOWN,
        owner=uuid.uuid4().hex,
        claimed_at=1_700_000_000.123456,
        evidence=(Evidence(at=1_700_000_060.5, jobs_seen=12, pages=1, complete=True), Evidence(1.0, 0, 0, False)),
        ghosts=("batch_1", "batch_2"),
        channels={"output": "jobs/a b/raw/output.jsonl", "error.jsonl": "jobs/e"},
        tokens={"input": 12_345_678_901},
        counts={},
        anomalies={"unknown": 1},
    )
    stored = ledger.put_submission(wanted, expected_version=None)
    assert stored == wanted
    assert ledger.submission(wanted.job_key, 2, "shard") == wanted
    assert ledger.submission(wanted.job_key, 1, "shard") is None
    assert ledger.submission(wanted.job_key, 2, "other") is None


def test_a_submission_moves_only_from_the_version_that_was_seen(ledger: Ledger) -> None:
    assert ledger.put_submission(submission(), expected_version=2) is None
    assert ledger.put_submission(submission(), expected_version=None) is not None
    assert ledger.put_submission(submission(), expected_version=None) is None
    bound = ledger.put_submission(submission(provider_job_id="batch_1"), expected_version=1)
    assert bound is not None
    assert bound.version == 2
    assert ledger.put_submission(submission(provider_job_id="batch_2"), expected_version=1) is None
    found = ledger.submission(bound.job_key, 1, "shard")
    assert found is not None
    assert found.provider_job_id == "batch_1"


def test_submissions_come_in_the_order_of_attempt_and_shard(ledger: Ledger) -> None:
    for attempt, shard in [(10, "a"), (2, "b"), (2, "a#1"), (1, "z"), (2, "Z")]:
        ledger.put_submission(submission("job", attempt, shard), expected_version=None)
    ledger.put_submission(submission("other", 2, "x"), expected_version=None)
    ledger.put_job(job(), expected_version=None)
    of_all = [(row.attempt, row.shard_id) for row in ledger.submissions(hexdigest("job"))]
    assert of_all == [(1, "z"), (2, "Z"), (2, "a#1"), (2, "b"), (10, "a")]
    assert [row.shard_id for row in ledger.submissions(hexdigest("job"), 2)] == ["Z", "a#1", "b"]
    assert list(ledger.submissions(hexdigest("job"), 3)) == []
    assert list(ledger.submissions(hexdigest("nobody"))) == []


def test_many_submissions_come_whole(ledger: Ledger) -> None:
    """More than one page of DynamoDB, which ends at 1 MB."""
    for number in range(24):
        ledger.put_submission(submission(shard=f"{number:03d}", ghosts=("g" * 60_000,)), expected_version=None)
    assert [row.shard_id for row in ledger.submissions(hexdigest("job"))] == [f"{n:03d}" for n in range(24)]


def test_jobs_are_listed_newest_first_by_tenant_and_moment(ledger: Ledger) -> None:
    for number, tenant in enumerate(["acme", "bolt", "acme", "bolt", "acme"]):
        ledger.put_job(job(f"j{number}", tenant=tenant, created_at=1_700_000_000 + number), expected_version=None)
    ledger.put_job(job("j1", tenant="bolt", created_at=1_700_000_001, reason="moved on"), expected_version=1)
    keys = {hexdigest(f"j{number}"): number for number in range(5)}
    assert [keys[row.job_key] for row in ledger.jobs()] == [4, 3, 2, 1, 0]
    assert [keys[row.job_key] for row in ledger.jobs(tenant="bolt")] == [3, 1]
    assert [keys[row.job_key] for row in ledger.jobs(since=1_700_000_003)] == [4, 3]
    assert [keys[row.job_key] for row in ledger.jobs(tenant="acme", since=1_700_000_001.5)] == [4, 2]
    assert list(ledger.jobs(since=1_800_000_000)) == []
    assert next(row for row in ledger.jobs(tenant="bolt", since=0) if row.version == 2).reason == "moved on"


def test_jobs_are_found_by_the_beginning_of_their_key(ledger: Ledger) -> None:
    keys = ["aa11" + "0" * 60, "aa12" + "0" * 60, "aa13" + "0" * 60, "bb00" + "0" * 60]
    for number, key in enumerate(keys):
        ledger.put_job(job(job_key=key, created_at=1_700_000_000.5 + number), expected_version=None)
    assert [row.job_key for row in ledger.jobs_with_prefix("aa11")] == [keys[0]]
    assert [row.job_key for row in ledger.jobs_with_prefix(keys[3])] == [keys[3]]
    assert [row.job_key for row in ledger.jobs_with_prefix("aa")] == [keys[2], keys[1]]
    assert [row.job_key for row in ledger.jobs_with_prefix("aa", limit=9)] == [keys[2], keys[1], keys[0]]
    assert [row.job_key for row in ledger.jobs_with_prefix("", limit=1)] == [keys[3]]
    assert list(ledger.jobs_with_prefix("cc")) == []
    assert list(ledger.jobs_with_prefix(keys[3][:-1] + "1")) == []
    assert list(ledger.jobs_with_prefix("aa", limit=0)) == []


def test_of_many_writers_of_one_version_exactly_one_wins(ledger: Ledger) -> None:
    def contend(writer: int, version: int) -> str | None:
        won = ledger.put_job(job(reason=f"{writer}"), expected_version=version or None)
        also = ledger.put_submission(submission(owner=f"{writer}"), expected_version=version or None)
        assert {row.version for row in (won, also) if row} <= {version + 1}
        return f"{won.reason if won else ''}/{also.owner if also else ''}"

    with ThreadPoolExecutor(8) as pool:
        for version in range(4):
            answers = list(pool.map(contend, range(8), [version] * 8))
            jobs = [text.split("/")[0] for text in answers if text and text.split("/")[0]]
            owners = [text.split("/")[1] for text in answers if text and text.split("/")[1]]
            assert (len(jobs), len(owners)) == (1, 1)
            stored, sub = ledger.job(hexdigest("job")), ledger.submission(hexdigest("job"), 1, "shard")
            assert stored is not None
            assert sub is not None
            assert (stored.reason, sub.owner) == (jobs[0], owners[0])


def test_a_record_is_claimed_by_the_first_job_only(ledger: Ledger) -> None:
    assert outcomes(ledger, "r1", "r2", by="a") == [MINE, MINE]
    foreign, mine = ledger.claim_records([claim("r1", "b"), claim("r3", "b", 2)])
    assert (foreign.outcome, mine.outcome, mine.row) == (FOREIGN, MINE, None)
    assert foreign.row == RecordRow(hexdigest("r1"), owner=hexdigest("a"), attempt=1)
    assert outcomes(ledger, "r1", "r3", by="a", attempt=3) == [MINE, FOREIGN]
    assert ledger.records([hexdigest("r3")])[hexdigest("r3")].attempt == 2


def test_an_accepted_answer_is_told_to_everyone_who_claims(ledger: Ledger) -> None:
    outcomes(ledger, "r1", "r2", by="a")
    assert list(ledger.accept_records([answer("r1", "a")])) == [True]
    for who in ("a", "b"):
        (result,) = ledger.claim_records([claim("r1", who)])
        assert result.outcome is ACCEPTED
        assert result.row is not None
        assert result.row.answer == answer("r1", "a")
        assert result.claim == claim("r1", who)
    assert outcomes(ledger, "r2", by="b") == [FOREIGN]


def test_an_answer_is_accepted_once_and_only_from_the_owner(ledger: Ledger) -> None:
    outcomes(ledger, "r1", "r2", by="a")
    assert list(ledger.accept_records([answer("r1", "b"), answer("r1", "a")])) == [False, True]
    assert list(ledger.accept_records([answer("r2", "b"), answer("nobody's", "a")])) == [False, False]
    assert list(ledger.accept_records([answer("r1", "a")])) == [True]
    assert list(ledger.accept_records([answer("r1", "a")])) == [True]
    assert list(ledger.accept_records([answer("r1", "a", text="Comedy"), answer("r1", "a", 2)])) == [False, False]
    assert list(ledger.accept_records([answer("r1", "b")])) == [False]
    assert ledger.records([hexdigest("r1")])[hexdigest("r1")].answer == answer("r1", "a")
    assert hexdigest("nobody's") not in ledger.records([hexdigest("nobody's")])


def test_a_record_twice_in_one_call_is_answered_twice(ledger: Ledger) -> None:
    claims = [claim("r1", "a"), claim("r2", "a"), claim("r1", "b"), claim("r1", "a", 2)]
    results = ledger.claim_records(claims)
    assert [result.outcome for result in results] == [MINE, MINE, FOREIGN, MINE]
    assert [result.claim for result in results] == claims
    answers = [answer("r1", "a"), answer("r1", "a", text="Comedy"), answer("r2", "a"), answer("r1", "a")]
    assert list(ledger.accept_records(answers)) == [True, False, True, True]


def test_a_later_attempt_leaves_its_number_and_its_reason_in_the_row(ledger: Ledger) -> None:
    outcomes(ledger, "again", "done", by="a")
    ledger.accept_records([answer("done", "a")])
    again = [
        RecordClaim(hexdigest(name), hexdigest("a"), 2, "server_error") for name in ("again", "done", "never claimed")
    ]
    for _ in range(2):
        results = ledger.take_over_records(again, from_job=hexdigest("a"))
        assert [result.outcome for result in results] == [MINE, ACCEPTED, MINE]
    rows = ledger.records([claim.record_key for claim in again])
    told = [(rows[claim.record_key].attempt, rows[claim.record_key].reason) for claim in again]
    assert told == [(2, "server_error"), (1, ""), (2, "server_error")]
    assert list(ledger.accept_records([answer("again", "a", 2)])) == [True]
    (row,) = ledger.records([hexdigest("again")]).values()
    assert (row.attempt, row.reason, row.answer is not None) == (2, "server_error", True)


def test_records_left_by_an_ended_job_are_taken_over(ledger: Ledger) -> None:
    outcomes(ledger, "left", "done", by="ended")
    outcomes(ledger, "busy", by="other")
    ledger.accept_records([answer("done", "ended")])
    wanted = [claim(name, "next", 2) for name in ("left", "done", "busy", "never claimed", "left")]
    results = ledger.take_over_records(wanted, from_job=hexdigest("ended"))
    assert [result.outcome for result in results] == [MINE, ACCEPTED, FOREIGN, MINE, MINE]
    assert [result.claim for result in results] == wanted
    again = ledger.take_over_records(wanted, from_job=hexdigest("ended"))
    assert [result.outcome for result in again] == [result.outcome for result in results]
    assert list(ledger.accept_records([answer("left", "ended"), answer("left", "next", 2)])) == [False, True]
    rows = ledger.records([hexdigest("left"), hexdigest("never claimed")])
    assert {row.owner for row in rows.values()} == {hexdigest("next")}
    assert {row.attempt for row in rows.values()} == {2}


def test_a_record_that_its_owner_gives_up_is_the_next_job_s_and_an_accepted_one_stays(ledger: Ledger) -> None:
    outcomes(ledger, "given up", "done", by="first")
    ledger.accept_records([answer("done", "first")])
    nobodys = [RecordClaim(hexdigest(name), NOBODY, 1) for name in ("given up", "done")]
    for _ in range(2):
        ledger.take_over_records(nobodys, from_job=hexdigest("first"))
    assert {row.owner for row in ledger.records([hexdigest("given up")]).values()} == {NOBODY}
    assert list(ledger.accept_records([answer("given up", "first")])) == [False]
    assert outcomes(ledger, "given up", "done", by="next") == [FOREIGN, ACCEPTED]
    (taken,) = ledger.take_over_records([claim("given up", "next")], from_job=NOBODY)
    assert taken.outcome is MINE
    assert list(ledger.accept_records([answer("given up", "next")])) == [True]


def test_an_answer_that_is_withdrawn_is_asked_afresh_and_only_if_it_is_the_one_that_was_meant(ledger: Ledger) -> None:
    outcomes(ledger, "one", "two", "open", by="mine")
    standing = [answer("one", "mine"), answer("two", "mine")]
    assert ledger.accept_records(standing) == [True, True]

    other = "s3://bucket/another/outcomes.jsonl.zst"
    ledger.withdraw_records({standing[0].record_key: standing[0].uri, standing[1].record_key: other})
    ledger.withdraw_records({claim("open").record_key: other, claim("never seen").record_key: other})

    assert outcomes(ledger, "two", "open", by="mine") == [ACCEPTED, MINE]
    assert ledger.records([claim("never seen").record_key]) == {}
    assert outcomes(ledger, "one", by="another") == [FOREIGN]
    (taken,) = ledger.take_over_records([claim("one", "another", 2)], from_job=NOBODY)
    assert taken.outcome is MINE
    fresh = answer("one", "another", 2)
    assert ledger.accept_records([fresh]) == [True]
    ledger.withdraw_records({standing[0].record_key: standing[0].uri})
    assert ledger.records([fresh.record_key])[fresh.record_key].answer == fresh


def test_more_records_than_fit_in_a_call_keep_their_order(ledger: Ledger) -> None:
    names = [f"r{n}" for n in range(257)]
    outcomes(ledger, *names[::3], by="a")
    expected = [FOREIGN if n % 3 == 0 else MINE for n in range(257)]
    assert outcomes(ledger, *names, by="b") == expected
    accepted = ledger.accept_records([answer(name, "b") for name in names])
    assert list(accepted) == [outcome is MINE for outcome in expected]
    rows = ledger.records([hexdigest(name) for name in [*names, "unknown", *names[:5]]])
    assert len(rows) == 257
    assert sum(row.answer is not None for row in rows.values()) == expected.count(MINE)


def test_nothing_asked_is_nothing_done(ledger: Ledger) -> None:
    assert list(ledger.claim_records([])) == []
    assert list(ledger.accept_records([])) == []
    assert list(ledger.take_over_records([], from_job="a")) == []
    assert dict(ledger.records([])) == {}


def test_of_many_jobs_that_claim_the_same_records_each_record_has_one_owner(ledger: Ledger) -> None:
    names = [f"r{n}" for n in range(120)]

    def claim_all(number: int) -> list[ClaimOutcome]:
        return outcomes(ledger, *(names if number % 2 else names[::-1]), by=f"job {number}")

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(claim_all, range(4)))
    told = [told[number] if number % 2 else told[number][::-1] for number in range(4)]
    owners = {key: row.owner for key, row in ledger.records([hexdigest(name) for name in names]).items()}
    for position, name in enumerate(names):
        by_record = [outcome[position] for outcome in told]
        assert sorted(by_record) == [FOREIGN] * 3 + [MINE]
        assert owners[hexdigest(name)] == hexdigest(f"job {by_record.index(MINE)}")


def test_a_pin_keeps_its_first_value(ledger: Ledger) -> None:
    assert ledger.pin("prompt", "acme/genre-v1", "digest 1") == "digest 1"
    assert ledger.pin("prompt", "acme/genre-v1", "digest 2") == "digest 1"
    assert ledger.pin("prompt", "acme/genre-v2", "digest 2") == "digest 2"
    assert ledger.pin("refusal", "acme/genre-v1", "3") == "3"
    with pytest.raises(ValueError, match="#"):
        ledger.pin("prompt#acme", "genre-v1", "x")

"""The whole line on Bedrock: a token instead of a search, results in our own bucket, and every way a job can end."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Job
from tests.support.bedrock import CLAUDE, claude, line, scenario
from tests.support.films import DATA, classes, films, results, tokens_of
from tests.support.pipeline import Pipeline

RECORDS = 20
SPEC = """\
name: genre
provider: bedrock
model: {model}
endpoint: {endpoint}
input: {{key: id, fields: [title]}}
prompt: {{version: genre-v1, system: You label films., user: "Title: {{{{ title }}}}"}}
generation: {{max_output_tokens: 400}}
output:
  schema:
    type: object
    additionalProperties: false
    required: [genre, confidence]
    properties: {{genre: {{type: string}}, confidence: {{type: number, minimum: 0, maximum: 1}}}}
retry: {{max_attempts: {attempts}, backoff: 1m}}
"""


def spec(model: str = "amazon.nova-lite-v1:0", endpoint: str = "Converse", attempts: int = 3) -> str:
    return SPEC.format(model=f"'{model}'", endpoint=endpoint, attempts=attempts)


@pytest.fixture
def line_(simulator: SimulatorServer) -> Pipeline:
    return Pipeline(simulator, provider_name="bedrock")


def run(pipeline: Pipeline, text: str = "", count: int = RECORDS) -> Job:
    pipeline.push_spec(text or spec())
    return pipeline.run(films(count))


def journal(pipeline: Pipeline) -> dict[str, Any]:
    return pipeline.simulator.control.journal()


def told(pipeline: Pipeline, job: Job) -> Counter[tuple[str, ...]]:
    """How many records have had each sequence of outcome classes."""
    return Counter(tuple(seen) for seen in classes(pipeline.objects, job).values())


def test_given_films_on_a_usual_day_when_the_job_ends_then_it_is_proven_and_paid_once(line_: Pipeline) -> None:
    """2 % error lines, 1 % missing, and the reply to the first create is lost."""
    line_.simulator.control.set_scenario("demo")
    line_.push_spec((DATA / "specs" / "film-genre-bedrock.yaml").read_text(), name="film-genre-bedrock")
    body = b"".join((DATA / "movies.jsonl").read_bytes().splitlines(keepends=True)[:1500])

    job = line_.run(body, spec="film-genre-bedrock")

    certificate, bill = line_.certificate(job), journal(line_)
    assert (job.state.value, certificate.expected, certificate.succeeded) == ("COMPLETED", 1500, 1500)
    assert bill["faults"] == {"bedrock.create.lost_reply": 1}
    assert set(bill["jobs_per_marker"].values()) == {1}
    assert len(bill["creates"]) == job.counts["submissions"] == job.counts["provider_jobs"]
    assert tokens_of(certificate) == bill["tokens_billed"]
    assert sum(bill["record_faults"].values()) > 20
    rows = results(line_.objects, job)
    assert len({row["business_key"] for row in rows}) == 1500
    assert {row["provider"] for row in rows} == {"bedrock"}
    assert line_.verify(job).ok


@pytest.mark.parametrize("fault", ["lost_reply", "reply_500_after", "cut_body"])
def test_given_a_create_whose_reply_is_lost_and_a_list_that_lags_when_sent_again_then_the_token_gives_the_same_job(
    line_: Pipeline, fault: str
) -> None:
    scenario(
        line_.simulator.control,
        calls=[{"on": "create", "fault": fault}],
        jobs=[{"fault": "invisible_in_list_for_s:600"}],
    )

    job = run(line_)

    bill = journal(line_)
    assert (job.state.value, job.counts["provider_jobs"]) == ("COMPLETED", 1)
    assert (len(bill["creates"]), len(bill["resends"])) == (1, 1)
    assert bill["resends"][0]["job_id"] == bill["creates"][0]["job_id"]
    assert line_.verify(job).ok


def test_given_a_lost_create_when_the_repeated_one_is_throttled_then_there_is_still_one_job(line_: Pipeline) -> None:
    """The refusal of the second call says nothing about the first."""
    scenario(
        line_.simulator.control,
        calls=[{"on": "create", "fault": "lost_reply"}, {"on": "create", "nth": 2, "count": 3, "fault": "status:429"}],
        jobs=[{"fault": "invisible_in_list_for_s:900"}],
    )

    job = run(line_)

    bill = journal(line_)
    assert (job.state.value, len(bill["creates"]), set(bill["jobs_per_marker"].values())) == ("COMPLETED", 1, {1})
    (row,) = line_.ledger.submissions(job.job_key)
    assert (row.generation, row.state) == (1, SubmissionState.RECONCILED)


def test_given_a_create_that_never_arrives_when_sent_again_then_the_same_token_makes_the_one_job(
    line_: Pipeline,
) -> None:
    scenario(line_.simulator.control, calls=[{"on": "create", "fault": "drop_before", "count": 2}])

    job = run(line_)

    (row,) = line_.ledger.submissions(job.job_key)
    assert (job.state.value, row.generation, len(journal(line_)["creates"])) == ("COMPLETED", 1, 1)


def test_given_the_quota_of_jobs_is_used_up_when_created_then_it_waits_and_uses_up_no_attempt(
    line_: Pipeline,
) -> None:
    scenario(
        line_.simulator.control,
        calls=[{"on": "create", "fault": "status:429", "count": 2, "retry_after_s": 77}],
    )

    job = run(line_, spec(attempts=1))

    (row,) = line_.ledger.submissions(job.job_key)
    assert (job.state.value, row.quota_refusals) == ("COMPLETED", 2)


ENDINGS = [
    ("expire", 0.5, [("missing", "succeeded"), ("succeeded",)], "PartiallyCompleted"),
    ("expire", 0.0, [("missing", "succeeded")], "Expired"),
    ("cancel", 0.4, [("missing", "succeeded"), ("succeeded",)], "Stopped"),
    ("fail_validation:out_of_luck", 0.5, [("missing", "succeeded")], "Failed"),
    ("only_error_file:error_500", 0.5, [("retryable", "succeeded")], "Completed"),
    ("vanish", 0.5, [("missing", "succeeded")], "ResourceNotFound"),
    ("results_gone", 0.5, [("missing", "succeeded")], "Completed"),
    ("unknown_state", 0.5, [("succeeded",)], "Completed"),
    ("backwards", 0.5, [("succeeded",)], "Completed"),
    ("wrong_counts", 0.5, [("succeeded",)], "Completed"),
]


@pytest.mark.parametrize(("fault", "done", "histories", "ending"), ENDINGS, ids=[f"{c[0]}-{c[1]}" for c in ENDINGS])
def test_given_a_job_that_ends_in_any_way_when_reconciled_then_only_what_is_missing_runs_again(
    line_: Pipeline, fault: str, done: float, histories: list[tuple[str, ...]], ending: str
) -> None:
    scenario(line_.simulator.control, jobs=[{"fault": fault, "done": done}])

    job = run(line_)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    assert sorted(told(line_, job)) == histories
    first = line_.ledger.submissions(job.job_key, 1)[0]
    assert first.provider_state == ending
    assert ("counts_disagree" in first.anomalies) == (fault in ("wrong_counts", "results_gone"))
    if fault not in ("vanish", "results_gone"):
        assert tokens_of(line_.certificate(job)) == journal(line_)["tokens_billed"]


@pytest.mark.parametrize(
    ("fault", "history"),
    [
        ("error_400", ("permanent",)),
        ("error_429", ("retryable",) * 3),
        ("error_in_body", ("retryable",) * 3),
        ("status_zero", ("retryable",) * 3),
        ("null_response", ("retryable",) * 3),
        ("refusal", ("refused",)),
        ("content_filter", ("refused",)),
        ("length", ("truncated",)),
        ("bad_schema", ("unqualified",) * 3),
        ("missing", ("missing",) * 3),
        ("body_as_string", ("succeeded",)),
        ("duplicate_same", ("succeeded",)),
        ("u2028", ("succeeded",)),
        ("crlf", ("succeeded",)),
        ("bom", ("succeeded",)),
    ],
)
@pytest.mark.parametrize("endpoint", ["Converse", "InvokeModel"])
def test_given_what_can_happen_to_a_record_when_it_happens_always_then_it_has_its_class(
    line_: Pipeline, fault: str, history: tuple[str, ...], endpoint: str
) -> None:
    scenario(line_.simulator.control, records=[{"fault": fault, "contains": "Film-007.", "times": "always"}])

    job = run(line_, spec(CLAUDE, endpoint))

    assert tuple(classes(line_.objects, job)["f007"]) == history
    assert told(line_, job)[("succeeded",)] == RECORDS - (history != ("succeeded",))
    assert line_.verify(job).ok


def test_given_claude_by_its_own_body_when_answered_then_its_version_is_no_drift_unless_it_is(line_: Pipeline) -> None:
    scenario(line_.simulator.control, records=[{"fault": "wrong_model", "contains": "Film-007."}])

    job = run(line_, spec(CLAUDE, "InvokeModel"))

    (row,) = line_.ledger.submissions(job.job_key)
    assert row.anomalies == {"model_drift": 1}
    versions = Counter(result["model_version"] for result in results(line_.objects, job))
    assert versions == {CLAUDE: RECORDS - 1, "claude-haiku-4-5-20251001-preview": 1}
    assert all(result["provider_request_id"].startswith("msg_bdrk_") for result in results(line_.objects, job))


@pytest.mark.parametrize("cause", ["below_minimum", "access_denied", "above_maximum", "invalid_input"])
def test_given_every_job_fails_as_a_whole_when_reconciled_then_the_job_fails_with_the_reason(
    line_: Pipeline, cause: str
) -> None:
    scenario(line_.simulator.control, jobs=[{"fault": f"fail_validation:{cause}", "count": "always"}])

    job = run(line_)

    assert job.state.value == "FAILED"
    assert cause in job.reason
    assert not journal(line_)["bills"]


def test_given_one_job_of_two_fails_as_a_whole_when_reconciled_then_its_records_run_again(line_: Pipeline) -> None:
    scenario(line_.simulator.control, jobs=[{"fault": "fail_validation:access_denied"}])

    job = run(line_, spec() + "shards: {max_records: 10}\n")

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    assert told(line_, job) == {("retryable", "succeeded"): 10, ("succeeded",): 10}


def test_given_a_retry_set_below_the_minimum_when_validated_then_its_records_say_so_and_the_rest_is_published(
    line_: Pipeline,
) -> None:
    scenario(
        line_.simulator.control,
        limits={"min_records": 100},
        records=[{"fault": "error_500", "contains": "Film-007."}],
    )

    job = run(line_, count=120)

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", 119, 1)
    later = line_.ledger.submissions(job.job_key)[1:]
    assert {(row.refusal_code, row.refusal_class) for row in later} == {("below_minimum", "retryable")}
    assert line_.verify(job).ok


def test_given_a_file_below_the_minimum_when_dropped_then_it_is_refused_before_anything_is_spent(
    simulator: SimulatorServer,
) -> None:
    pipeline = Pipeline(simulator, provider_name="bedrock", min_records={"bedrock": 100})

    job = run(pipeline, count=99)

    assert job.state.value == "FAILED"
    assert "at least 100 records; this file has 99" in job.reason
    assert not journal(pipeline)["creates"]


def test_given_no_service_role_when_submitted_then_the_job_fails_with_that_reason(line_: Pipeline) -> None:
    line_.provider = line_.bedrock(role_arn="")

    job = run(line_)

    assert job.state.value == "FAILED"
    assert "TALLYBATCH_BEDROCK_ROLE_ARN" in job.reason


def test_given_a_native_file_when_run_then_its_requests_go_as_they_are_under_our_ids(line_: Pipeline) -> None:
    scenario(line_.simulator.control)
    line_.push_spec((DATA / "specs" / "native-bedrock.yaml").read_text(), name="native-bedrock")
    body = b"".join(line(f"row-{number}", claude(f"Film {number}", top_k=5)) + b"\n" for number in range(RECORDS))

    job = line_.run(body, spec="native-bedrock")

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    assert {row["business_key"] for row in results(line_.objects, job)} == {f"row-{n}" for n in range(RECORDS)}
    (key,) = [info.key for info in line_.objects.list("jobs/") if info.key.endswith("/request.jsonl")]
    sent = [json.loads(text) for text in line_.objects.get(key).splitlines()]
    assert sent[0]["modelInput"] == json.loads(body.splitlines()[0])["modelInput"]
    assert all(len(request["recordId"]) == 32 for request in sent)


def test_given_a_native_file_with_a_line_that_could_not_run_when_dropped_then_the_line_is_named(
    line_: Pipeline,
) -> None:
    line_.push_spec((DATA / "specs" / "native-bedrock.yaml").read_text(), name="native-bedrock")
    bad = {name: value for name, value in claude("x").items() if name != "anthropic_version"}

    job = line_.run(line("a", claude("y")) + b"\n" + line("b", bad) + b"\n", spec="native-bedrock")

    assert job.state.value == "FAILED"
    assert "line 2" in job.reason
    assert "anthropic_version" in job.reason


def test_given_earthquakes_when_embedded_with_titan_then_each_has_its_vector(line_: Pipeline) -> None:
    scenario(line_.simulator.control, records=[{"fault": "error_500", "rate": 0.05}])
    name = "earthquakes-embedding-bedrock"
    line_.push_spec((DATA / "specs" / f"{name}.yaml").read_text(), name=name)

    job = line_.run((DATA / "earthquakes.jsonl").read_bytes(), spec=name)

    rows = results(line_.objects, job)
    assert (job.state.value, len(rows)) == ("COMPLETED", 1500)
    assert {len(row["output"]) for row in rows} == {256}
    assert all(abs(sum(value * value for value in row["output"]) - 1) < 1e-6 for row in rows)
    assert tokens_of(line_.certificate(job)) == journal(line_)["tokens_billed"]
    assert line_.verify(job).ok


def test_given_the_manifest_of_the_output_when_collected_then_it_is_kept_and_not_tallied(line_: Pipeline) -> None:
    job = run(line_)

    (row,) = line_.ledger.submissions(job.job_key)
    assert sorted(row.channels) == ["meta-manifest", "output-0"]
    assert json.loads(line_.objects.get(row.channels["meta-manifest"]))["successRecordCount"] == RECORDS
    assert row.anomalies == {}

"""3,201 real films, dropped by a bare put_object, go through the deployed line and come back closed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.local.simulator.server import SimulatorServer
from tallybatch.cli.main import app
from tallybatch.domain.certificate import from_bytes
from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.rows import Job
from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import DATA, report, results
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.xdist_group("e2e")

FILMS = DATA / "movies.jsonl"
SPEC = Path(__file__).parents[2] / "infra/local/demo/film-genre.yaml"
VERSION = "2026-01"
COUNT = 3201


@pytest.fixture(scope="module")
def job(line: Deployed) -> Iterator[Job]:
    tenant = fresh_tenant("films")
    line.push_spec(tenant, SPEC.read_text(), name="film-genre")
    line.put(f"inbox/{tenant}/film-genre/{VERSION}/movies.jsonl", FILMS.read_bytes())
    [job] = line.ended(tenant, within_s=240)
    yield job


def test_given_all_films_when_a_bare_put_drops_them_then_each_has_one_answer(line: Deployed, job: Job) -> None:
    assert job.state == "COMPLETED", job.reason
    assert job.expected == COUNT
    assert job.counts == {
        "succeeded": COUNT, "reused": 0, "failed": 0, "missing": 0, "unknown": 0, "duplicate": 0, "in_review": 0,
        "submissions": 4, "provider_jobs": 4,
    }  # fmt: skip
    rows = results(line.objects, job)
    wanted = {json.loads(text)["id"] for text in FILMS.read_bytes().splitlines()}
    assert Counter(row["business_key"] for row in rows) == Counter(wanted)
    assert {frozenset(row["output"]) for row in rows} == {frozenset({"genre", "confidence"})}
    assert report(line.objects, job)["state"] == "COMPLETED"


def test_given_the_job_when_the_provider_is_asked_then_it_got_one_create_per_shard(line: Deployed, job: Job) -> None:
    created = line.creates(job)
    assert Counter(entry["marker"] for entry in created) == Counter(
        row.submission_key for row in line.ledger.submissions(job.job_key)
    )
    assert {entry["job_id"] for entry in created} == {
        row.provider_job_id for row in line.ledger.submissions(job.job_key)
    }


def test_given_the_job_when_its_execution_is_read_then_the_states_have_their_names(line: Deployed, job: Job) -> None:
    assert job.execution_name == f"{job.job_key}-1"
    assert line.executions(job.job_key) == [job.execution_name]
    assert line.entered(job) == [
        "AdmitJob", "IsAdmitted", "PlanAttempt", "ShardMap", "IsLastWave", "ReconcileJob", "IsClosed",
        "PublishMap", "SealJob", "IsComplete", "JobCompleted",
    ]  # fmt: skip
    assert [child["status"] for child in line.children(job)] == ["SUCCEEDED"] * 8


def test_given_everything_the_job_wrote_when_build_manifest_is_asked_then_it_ran_for_the_drop_alone(
    line: Deployed, job: Job
) -> None:
    written = [info.key for info in line.objects.list(f"jobs/{job.tenant}/")]
    assert len(written) > 20
    log = line.log("BuildManifest")
    assert len([entry for entry in log if entry.get("job_key") == job.job_key]) == 1
    assert not [entry for entry in log if "ignored" in entry]


def test_given_the_job_when_it_is_verified_by_the_command_then_the_certificate_holds(line: Deployed, job: Job) -> None:
    certificate = from_bytes(line.objects.get(line.keys(job).certificate), where="certificate")
    assert (certificate.expected, certificate.succeeded, certificate.missing) == (COUNT, COUNT, 0)
    ran = CliRunner().invoke(app, ["verify", job.job_key, "--json", "--endpoint-url", line.endpoint_url])
    assert ran.exit_code == 0, ran.output


def test_given_the_same_steps_in_one_process_when_they_prepare_the_films_then_the_job_key_is_the_same(job: Job) -> None:
    with SimulatorServer("calm", clock_scale=0) as simulator:
        pipeline = Pipeline(simulator)
        pipeline.push_spec(SPEC.read_text(), tenant=job.tenant, name="film-genre")
        prepared = pipeline.drop(
            FILMS.read_bytes(), tenant=job.tenant, spec="film-genre", version=VERSION, name="another-name.jsonl"
        )
    assert prepared["job_key"] == job.job_key


def test_given_the_job_when_the_command_submits_the_films_again_then_it_is_the_same_job_and_nothing_is_new(
    line: Deployed, job: Job
) -> None:
    # GIVEN
    def published() -> tuple[object, ...]:
        """All but the moment of the last drop."""
        current = json.loads(line.objects.get(ResultKeys(job.tenant, job.spec, job.dataset_version).current))
        (source,) = current["sources"].values()
        dropped_at = source.pop("dropped_at")
        assert dropped_at >= job.dropped_at
        return source, line.objects.head(line.keys(job).certificate), line.creates(job)

    before = published()
    # WHEN
    arguments = ["--spec", str(SPEC), "--tenant", job.tenant, "--dataset-version", VERSION]
    ran = CliRunner().invoke(
        app, ["submit", str(FILMS), *arguments, "--follow", "--json", "--endpoint-url", line.endpoint_url]
    )
    # THEN
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert (told["job_key"], told["state"], told["succeeded"]) == (job.job_key, "COMPLETED", COUNT)
    assert published() == before
    assert line.executions(job.job_key) == [job.execution_name]
    assert [each.job_key for each in line.jobs(job.tenant)] == [job.job_key]
    assert datetime.fromtimestamp(line.jobs(job.tenant)[0].updated_at, UTC) == datetime.fromtimestamp(
        job.updated_at, UTC
    )

"""Plays cases on the local stack: drops their files, does what people do there, and waits for what follows."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from typer.testing import CliRunner

from tallybatch.cli.main import app
from tallybatch.cli.stack import Place, connect_to
from tallybatch.domain.lifecycle import JOB_FINAL
from tallybatch.domain.rows import Job
from tallybatch.settings import PREFIX, MinimumSettings
from tests.outcomes.cases import Action, Case, Group, title
from tests.outcomes.expected_jobs import QUICK
from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import MODELS

T = TypeVar("T")
POLL_S = 1.0
PATIENCE_S = 900
WHO = "ada"

SPEC: Mapping[str, Any] = {
    "name": "genre",
    "purpose": "catalogue",
    "input": {"key": "id", "fields": ["title", "tail"]},
    "prompt": {"version": "v1", "user": "{{ title }}{{ tail }}"},
    "generation": {"max_output_tokens": 400},
    "output": {
        "schema_version": "GenreV1",
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["genre", "quote"],
            "properties": {"genre": {"type": "string"}, "quote": {"type": "string"}},
        },
    },
    "retry": {"max_attempts": 3, "backoff": "10s"},
}


def spec_text(case: Case, provider: str) -> str:
    """Of each section, the usual keys and those of the case."""
    model, endpoint = MODELS[provider]
    document = {**SPEC, "provider": provider, "model": model, "endpoint": endpoint}
    for section, keys in case.spec.items():
        document[section] = {**document.get(section, {}), **keys} if isinstance(keys, Mapping) else keys
    return yaml.safe_dump(document, sort_keys=False)


def file_of(case: Case) -> bytes:
    return b"".join(
        json.dumps({"id": key, "title": title(case, group, key), "tail": group.tail}).encode() + b"\n"
        for group in case.groups
        for key in group.names()
    )


def scenario(cases: Iterable[Case], *, least: int = 1) -> str:
    """One for all these cases; `least` is what Bedrock takes at least."""
    cases = list(cases)
    in_order = [case for case in cases if case.job_fault]
    return json.dumps(
        {
            "name": "outcomes",
            "durations": QUICK,
            "cancelled_rows": "error_line",
            "limits": {"min_records": least},
            "records": [rule for case in cases for rule in case.rules()],
            "jobs": [{"nth": number, "durations": QUICK, **case.job_fault} for number, case in enumerate(in_order, 1)],
        }
    )


class Stage:
    """Safe to be used by several threads at once."""

    def __init__(self, line: Deployed) -> None:
        self.line = line
        assert line.status.stack
        self._connection = connect_to(Place(line.status.stack, line.endpoint_url))
        self._command = threading.Lock()
        self._tenants: dict[tuple[str, str], str] = {}
        _ = (line.objects, line.ledger, line.states, line.simulator, line.s3)

    def take(self, cases: Iterable[Case], *, least: int = 1) -> None:
        """Let the simulator do to the records of these cases what they are to meet."""
        self.line.simulator.set_scenario_text(scenario(cases, least=least))

    def set_bedrock_minimum(self, records: int) -> None:
        """As a deployment with another quota has it, on the functions that ask."""
        name = PREFIX + "BEDROCK_MIN_RECORDS"
        for model in MinimumSettings.__subclasses__():
            function = f"{self.line.status.stack}-{model.function}"
            told = self.line.aws.lambda_.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
            self.line.aws.lambda_.update_function_configuration(
                FunctionName=function, Environment={"Variables": {**told, name: str(records)}}
            )

    # What a user does

    def drop(self, case: Case, provider: str) -> None:
        tenant = self.tenant(case, provider)
        self.line.push_spec(tenant, spec_text(case, provider))
        self._put(case, tenant)

    def drop_beside(self, other: Case, case: Case, provider: str) -> None:
        """`other` under the tenant and the spec of `case`."""
        self._tenants[other.name, provider] = self.tenant(case, provider)
        self._put(other, self.tenant(case, provider))

    def _put(self, case: Case, tenant: str) -> None:
        self.line.drop(tenant, file_of(case), version=case.version)

    def tenant(self, case: Case, provider: str) -> str:
        return self._tenants.setdefault((case.name, provider), fresh_tenant(f"{case.name}-{provider}"))

    def act(self, action: Action, case: Case, provider: str) -> None:
        """What somebody does, by the command that is there for it. Waits until it can be done."""
        job = self.job(case, provider)
        key = job.job_key
        if action in ("approve", "reject"):
            self._until(lambda: self._asks(key), f"{case.name} on {provider} asks for approval")
            self.command("approve", key, "--reason", "as expected", *(["--reject"] if action == "reject" else []))
        elif action == "cancel":
            self.created(case, provider)
            self._until(lambda: self._half_done(job), f"{case.name} on {provider} is half done")
            self.command("cancel", key)
        elif action == "acknowledge":
            self.command("acknowledge", key, "--by", WHO)
        elif action == "publish a part":
            self.command("publish", key, "--partial", "--by", WHO)
        elif action == "resolve":
            self._resolve(case, job)
        else:
            self._put(case, job.tenant)

    def _resolve(self, case: Case, job: Job) -> None:
        with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
            path = Path(folder) / "decisions.jsonl"
            lines = [_decision(case, group, key) for group in case.groups if group.decision for key in group.names()]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            self.command("review", "resolve", job.job_key, path, "--by", WHO)

    def command(self, *words: str | Path) -> dict[str, Any]:
        """The command's document. One at a time, for it writes to this process's own output."""
        with self._command:
            done = CliRunner().invoke(app, [*map(str, words), "--json"], obj=lambda _: self._connection)
        if done.exit_code:
            raise AssertionError(f"tallybatch {words[0]} ended with {done.exit_code}: {done.output}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    # What a user waits for

    def job(self, case: Case, provider: str) -> Job:
        tenant = self.tenant(case, provider)

        def look() -> list[Job]:
            return [job for job in self.line.jobs(tenant) if job.dataset_version == case.version]

        found = self._until(look, f"the job of {case.name} on {provider}")
        return found[0]

    def created(self, case: Case, provider: str) -> None:
        """Returns once the job has one at the provider."""
        key = self.job(case, provider).job_key
        ledger = self.line.ledger
        self._until(
            lambda: any(row.provider_job_id for row in ledger.submissions(key)), f"a provider job of {case.name}"
        )

    def ended(self, case: Case, provider: str, *, run: int = 1) -> Job:
        """The job as soon as its `run`-th execution is over."""
        key = self.job(case, provider).job_key

        def look() -> Job | None:
            job = self.line.ledger.job(key)
            over = job is not None and job.state in JOB_FINAL and job.run >= run
            return job if over and job and self.line.execution(job)["status"] != "RUNNING" else None

        job = self._until(look, f"run {run} of {case.name} on {provider} ends")
        assert job is not None
        return job

    def waits(self, case: Case, provider: str) -> None:
        """Returns once records of the job wait for another job's."""
        key = self.job(case, provider).job_key
        ledger = self.line.ledger
        self._until(lambda: any(row.waiting_records for row in ledger.submissions(key)), f"{case.name} waits")

    def _asks(self, job_key: str) -> bool:
        job = self.line.ledger.job(job_key)
        return job is not None and job.approval is not None and bool(job.approval.token)

    def _half_done(self, job: Job) -> bool:
        wanted = round(0.4 * job.expected)
        batches = self.line.simulator.journal()["batches"]
        rows = self.line.ledger.submissions(job.job_key)
        return any(batches[row.provider_job_id]["counts"]["completed"] >= wanted for row in rows)

    def _until(self, look: Callable[[], T], what: str) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := look()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {PATIENCE_S} s: {what}")
            time.sleep(POLL_S)
        return found


def _decision(case: Case, group: Group, key: str) -> dict[str, Any]:
    line: dict[str, Any] = {"business_key": key, "decision": group.decision}
    if group.decision == "accept":
        line["output"] = {"genre": "Drama", "quote": title(case, group, key)}
    if group.decision == "reject":
        line["reason"] = "nothing to be had"
    return line

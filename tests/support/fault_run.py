"""One fault, run through the whole line and held against the ending that it must have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.local.simulator.scenario import split_fault
from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.providers.bedrock import BedrockApi
from tallybatch.adapters.providers.gemini import GeminiApi
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.domain.rows import Job, Submission
from tallybatch.ports import ProviderApi
from tests.support.bedrock import ROLE_ARN, bedrock_client
from tests.support.films import films, histories, key_of, results, scenario, spec
from tests.support.memory_objects import MemoryObjects
from tests.support.pipeline import API_KEY, Pipeline

RECORDS = 12
DONE = "succeeded"
PROVIDERS = ("openai", "bedrock", "gemini")
_KINDS = ("input", "cached_input", "output", "reasoning")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Where a job must end. The records that `told` does not count must have succeeded at once."""

    state: str = "COMPLETED"
    told: Mapping[str, int] = field(default_factory=dict)
    """How many records have which outcomes, attempt by attempt: `retryable > succeeded`."""
    reason: str = ""
    """A part of the job's reason; "" means that it has none."""
    jobs: int = 1
    """That came to be at the provider, whether anybody heard of them or not."""
    attempts: int = 1
    generation: int = 1
    """The highest."""
    anomalies: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """On the outcome of at least one record."""
    code: str = ""
    """Of each first outcome that is no success."""
    at_least_s: float = 0
    """Virtual time that must have passed: a wait that was asked for."""
    unread_jobs: int = 0
    """Jobs that billed and whose results nobody can read any more."""
    unread_lines: int = 0
    """Billed lines whose usage was in the half that never came."""
    unbilled_lines: int = 0
    """Lines whose usage counts although nothing was billed for them: no request id tells what they repeat."""
    other_answers: int = 0
    """Accepted answers that are not those of an undisturbed run."""

    def __str__(self) -> str:
        return disposition(self.state, {**self.told, DONE: RECORDS - sum(self.told.values())})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`scenario` holds the simulator's keys; `on` has the endings of providers that know no better or worse way."""

    name: str
    wrong: str
    """What goes wrong, in words."""
    scenario: Mapping[str, Any]
    ending: Ending = Ending()
    on: Mapping[str, Ending] = field(default_factory=dict)
    providers: tuple[str, ...] = PROVIDERS
    spec: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    """Options of the adapter."""

    def ending_on(self, provider: str) -> Ending:
        return self.on.get(provider, self.ending)


@dataclass(frozen=True, kw_only=True)
class Reached:
    disposition: str
    jobs: int = 0
    attempts: int = 0
    wrong: tuple[str, ...] = ()
    """Every way in which this is not the ending that was expected."""


def scenarios(faults: Iterable[Fault], providers: Collection[str] = PROVIDERS) -> list[tuple[Fault, str]]:
    """Each fault on each of these providers that has it."""
    return [(fault, provider) for fault in faults for provider in fault.providers if provider in providers]


def disposition(state: str, told: Mapping[str, int]) -> str:
    """`COMPLETED 11 succeeded, 1 retryable > succeeded`."""
    counts = ", ".join(f"{count} {history}" for history, count in sorted(told.items()) if count)
    return f"{state} {counts}"


class Stage:
    """Runs faults, one after the other, against one simulator."""

    def __init__(self, simulator: SimulatorServer) -> None:
        self._simulator = simulator
        self._clients: dict[str, Callable[..., ProviderApi]] = {
            "openai": self._openai,
            "bedrock": self._bedrock,
            "gemini": self._gemini,
        }
        self._boto: Any = None
        self._calm: dict[tuple[str, ...], dict[str, Any]] = {}
        """Answers of undisturbed runs, by provider and model."""
        self._pipeline: Pipeline | None = None

    def run(self, fault: Fault, provider: str) -> Reached:
        """Never raises for what the line does: that is a wrong ending."""
        ending = fault.ending_on(provider)
        try:
            calm = self._calm_answers(provider, fault.spec)
            pipeline, job, passed_s = self._play(fault.scenario, fault.spec, fault.client, provider)
            look = _Look(pipeline, job, passed_s, calm)
            return Reached(
                disposition=disposition(job.state.value, look.told),
                jobs=len(look.journal["creates"]),
                attempts=job.attempt,
                wrong=(
                    *struck(fault.scenario, provider, look.journal),
                    *look.against(ending),
                    *look.broken(ending),
                ),
            )
        except Exception as error:
            return Reached(disposition="", wrong=(f"{type(error).__name__}: {error}",))

    def _play(
        self, keys: Mapping[str, Any], changed: Mapping[str, Any], options: Mapping[str, Any], provider: str
    ) -> tuple[Pipeline, Job, float]:
        self._simulator.control.reset()
        scenario(self._simulator.control, **{"limits": {"min_records": 1}, **keys})
        objects = MemoryObjects()
        client = self._clients[provider](objects, **options)
        pipeline = Pipeline(self._simulator, provider=client, objects=objects)
        self._pipeline = pipeline
        began = pipeline.clock.now()
        pipeline.push_spec(spec(provider, **changed))
        job = pipeline.run(films(RECORDS))
        return pipeline, job, pipeline.clock.now() - began

    def _openai(self, _: MemoryObjects, **options: Any) -> ProviderApi:
        usual = {"timeout_s": 5, "create_timeout_s": 5, "max_retries": 0, "sleep": self._sleep}
        return OpenAIApi(lambda: API_KEY, base_url=self._simulator.openai_base_url, **{**usual, **options})

    def _bedrock(self, objects: MemoryObjects, **options: Any) -> ProviderApi:
        url = self._simulator.bedrock_endpoint_url
        client = self._boto = self._boto or bedrock_client(url)
        create_client = bedrock_client(url, timeout_s=options["create_timeout_s"]) if options else client
        return BedrockApi(client, create_client, objects, ROLE_ARN, sleep=self._sleep)

    def _gemini(self, _: MemoryObjects, **options: Any) -> ProviderApi:
        usual = {"timeout_s": 5, "create_timeout_s": 5, "max_retries": 0, "sleep": self._sleep}
        return GeminiApi(lambda: API_KEY, base_url=self._simulator.gemini_base_url, **{**usual, **options})

    def _sleep(self, seconds: float) -> None:
        assert self._pipeline is not None
        self._pipeline.wait(seconds)

    def _calm_answers(self, provider: str, changed: Mapping[str, Any]) -> dict[str, Any]:
        model = {name: value for name, value in changed.items() if name in ("model", "endpoint")}
        key = (provider, *model.values())
        if key not in self._calm:
            pipeline, job, _ = self._play({}, model, {}, provider)
            self._calm[key] = {row["business_key"]: row["output"] for row in results(pipeline.objects, job)}
            assert len(self._calm[key]) == RECORDS, "the undisturbed run did not answer every record"
        return self._calm[key]


def struck(keys: Mapping[str, Any], provider: str, journal: Mapping[str, Any]) -> Iterator[str]:
    """Faults of the scenario that never came to be: an ending without them shows nothing."""
    for rule in keys.get("calls", ()):
        name = f"{provider}.{rule['on']}.{split_fault(rule['fault'])[0]}"
        if not journal["faults"].get(name):
            yield f"the fault {name} never struck"
    for rule in keys.get("records", ()):
        if not journal["record_faults"].get(rule["fault"]):
            yield f"the fault {rule['fault']} never struck"
    for rule in keys.get("jobs", ()):
        if len(journal["creates"]) < rule.get("nth", 1):
            yield f"the fault {rule.get('fault', 'none')} never struck: there were too few jobs"


class _Look:
    """What a job left behind: in the ledger, in the bucket, and with the provider."""

    def __init__(self, pipeline: Pipeline, job: Job, passed_s: float, calm: Mapping[str, Any]) -> None:
        self.pipeline, self.job, self.passed_s, self.calm = pipeline, job, passed_s, calm
        self.journal = pipeline.simulator.control.journal()
        self.histories = histories(pipeline.objects, job)
        self.told = Counter(" > ".join(row.outcome.value for row in rows) for rows in self.histories.values())
        self.rows: list[Submission] = list(pipeline.ledger.submissions(job.job_key))
        published = list(pipeline.objects.list("results/"))
        self.published = results(pipeline.objects, job) if published else []

    def against(self, ending: Ending) -> Iterator[str]:
        """Differences from the ending of this fault."""
        job = self.job
        anomalies: Counter[str] = Counter()
        for row in self.rows:
            anomalies.update(row.anomalies)
        notes = {note for rows in self.histories.values() for row in rows for note in row.notes}
        codes = {rows[0].code for rows in self.histories.values() if rows[0].outcome.value != DONE}
        told = dict(ending.told)
        if sum(told.values()) < RECORDS:
            told[DONE] = RECORDS - sum(told.values())
        changed = sum(row["output"] != self.calm.get(row["business_key"]) for row in self.published)
        yield from _differ("state", ending.state, job.state.value)
        yield from _differ("outcomes", told, dict(self.told))
        yield from _differ("provider jobs", ending.jobs, len(self.journal["creates"]))
        yield from _differ("attempts", ending.attempts, job.attempt)
        yield from _differ("generation", ending.generation, max((row.generation for row in self.rows), default=0))
        yield from _differ("anomalies", dict(ending.anomalies), dict(anomalies))
        yield from _differ("notes", set(ending.notes), notes)
        yield from _differ("answers unlike the undisturbed ones", ending.other_answers, changed)
        if ending.reason not in job.reason or (job.reason and not ending.reason):
            yield f"the reason is {job.reason!r}, expected {ending.reason!r} in it"
        if ending.code and codes != {ending.code}:
            yield f"the codes are {sorted(codes)}, expected {ending.code!r}"
        if self.passed_s < ending.at_least_s:
            yield f"{self.passed_s:.0f} s passed, expected at least {ending.at_least_s:.0f} s"

    def broken(self, ending: Ending) -> Iterator[str]:
        """Violations of what holds after any fault: one disposition per record, no second paid job, an honest bill."""
        yield from self._records()
        yield from self._jobs()
        yield from self._bill(ending)
        if self.job.state.value == "COMPLETED":
            verified = self.pipeline.verify(self.job)
            if not verified.ok:
                yield f"verify: {verified.difference}"
        elif self.published or self.pipeline.objects.head(self.pipeline.keys(self.job).certificate):
            yield f"the job is {self.job.state.value}, and something was certified or published"

    def _records(self) -> Iterator[str]:
        keys = [key_of(number) for number in range(1, RECORDS + 1)]
        yield from _differ("records with a disposition", keys, sorted(self.histories))
        accepted = sorted(key for key, rows in self.histories.items() if rows[-1].outcome.value == DONE)
        for key, rows in self.histories.items():
            if any(row.outcome.value == DONE for row in rows[:-1]):
                yield f"{key} was tried again after it had been accepted"
        if self.job.state.value != "FAILED":
            counts = self.job.counts
            yield from _differ("records that succeeded", len(accepted), counts["succeeded"])
            undone = counts["failed"] + counts["in_review"]
            yield from _differ("records that failed or wait for people", RECORDS - len(accepted), undone)
        if self.job.state.value == "COMPLETED":
            yield from _differ("published records", accepted, [row["business_key"] for row in self.published])

    def _jobs(self) -> Iterator[str]:
        for marker, jobs in self.journal["jobs_per_marker"].items():
            if jobs > 1:
                yield f"{jobs} provider jobs carry the marker {marker}"
        created = {entry["job_id"] for entry in self.journal["creates"]}
        known = {job for row in self.rows for job in (*row.earlier_jobs, row.provider_job_id, *row.ghosts) if job}
        yield from _differ("provider jobs that the ledger knows", created, known)
        for row in self.rows:
            proven = len(row.absences) + row.quota_refusals
            if row.generation - 1 != proven or not all(look.complete for look in row.absences):
                yield f"generation {row.generation} of a submission without the proofs that it needs"

    def _bill(self, ending: Ending) -> Iterator[str]:
        """What the ledger and the certificate hold, against what the simulator billed."""
        billed = Counter(self.journal["tokens_billed"])
        per_marker = self.journal["tokens_per_marker"]
        unread = [
            row.submission_key
            for row in self.rows
            if not any(row.tokens.values()) and any(per_marker.get(row.submission_key, {}).values())
        ]
        yield from _differ("jobs whose bill cannot be read", ending.unread_jobs, len(unread))
        for marker in unread:
            billed.subtract(per_marker[marker])
        ledger: Counter[str] = Counter()
        for row in self.rows:
            ledger.update(row.tokens)
            ledger.update(row.duplicate_tokens)
        yield from self._money()
        hidden = ending.unread_lines - ending.unbilled_lines
        kinds = ("input",) if hidden else _KINDS
        if hidden:
            billed["input"] -= hidden * billed["input"] // sum(row.input_records for row in self.rows)
        expected = {kind: billed[kind] for kind in kinds}
        yield from _differ("tokens in the ledger", expected, {kind: ledger[kind] for kind in kinds})
        if self.job.state.value == "COMPLETED":
            tokens = self.pipeline.certificate(self.job).tokens
            yield from _differ("tokens of the certificate", expected, {kind: tokens.get(kind, 0) for kind in kinds})

    def _money(self) -> Iterator[str]:
        """To the nano-dollar, except where something that was paid for can be read nowhere, and then it is counted."""
        booked = sum(row.cost_nano_usd + row.duplicate_cost_nano_usd for row in self.rows)
        billed = self.journal["billed_nano_usd"]
        if not any(row.unpriced for row in self.rows):
            yield from _differ("nano-dollars in the ledger", billed, booked)
        elif booked > billed:
            yield f"{booked} nano-dollars in the ledger, but only {billed} were billed"


def _differ(what: str, expected: Any, reached: Any) -> Iterator[str]:
    if expected != reached:
        yield f"{what}: expected {_text(expected)}, reached {_text(reached)}"


def _text(value: Any) -> str:
    return json.dumps(sorted(value) if isinstance(value, set) else value, sort_keys=True)

"""The crash matrix: one job, run again for each call that it makes, each time struck at that call, and looked over.

The calls are not listed anywhere: an undisturbed run counts them at the HTTP layer (`tests.support.wire`), so a new one
is covered as soon as it is made. A point is a call, a fault and what comes after it: the same task again, as Step
Functions' Retry, or the execution given up and started again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from typing import Any, ClassVar, cast

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.errors import BadInput
from tallybatch.domain.rows import Job, Submission
from tallybatch.domain.spec_file import parse_spec
from tallybatch.domain.submitting import generation_key
from tallybatch.ports import Objects
from tests.support.films import current, histories, scenario, tokens_of
from tests.support.handled import KEY, Ground, HandledPipeline, ground
from tests.support.wire import KILLS, Call, Fault

MODELS = {
    "openai": "gpt-5-mini-2025-08-07",
    "bedrock": "amazon.nova-lite-v1:0",
    "gemini": "gemini-2.5-flash",
}
PROMPT, TITLE, ANSWER = "OCELOT-PROMPT", "MARMOT-TITLE", "WOMBAT-ANSWER"
"""Words that may appear in no log: of the prompt, of each record and of each answer."""
SECRETS = {"prompt": PROMPT, "record": TITLE, "answer": ANSWER, "key": KEY}
SPEC = f"""\
name: genre
provider: {{provider}}
model: {{model}}
prompt: {{{{system: {PROMPT}, user: "{{{{{{{{ title }}}}}}}}"}}}}
output:
  schema_version: V1
  schema:
    type: object
    additionalProperties: false
    required: [genre, year]
    properties:
      genre: {{{{type: string, enum: [{ANSWER}-a, {ANSWER}-b, {ANSWER}-c]}}}}
      year: {{{{type: integer, minimum: 1900, maximum: 2000}}}}
retry: {{{{max_attempts: 3, backoff: 1m}}}}
shards: {{{{max_records: 3}}}}
"""
RECORDS = 6
BODY = b"".join(json.dumps({"id": f"f{n}", "title": f"{TITLE}-{n}."}).encode() + b"\n" for n in range(1, RECORDS + 1))
LOST_AT_ONCE = 8
FASTEST = {"validating": 0, "in_progress": 0, "finalizing": 0, "cancelling": 0}
VOLATILE = ("provider_job_id", "provider_request_id", "raw")
"""What the simulator numbers afresh in each run, and where its bytes lie."""


def providers() -> list[str]:
    """Those that the product can run."""
    return [name for name in MODELS if _is_supported(name)]


def spec_of(provider: str) -> str:
    return SPEC.format(provider=provider, model=MODELS[provider])


def _is_supported(provider: str) -> bool:
    try:
        parse_spec(spec_of(provider).encode(), file="spec")
    except BadInput:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Point:
    call: Call
    fault: Fault
    restarts: bool = False

    @property
    def then(self) -> str:
        return "restart" if self.restarts else "retry" if self.fault in KILLS else "go on"


Trial = tuple[Point, ...]
"""Points that are tried in one run, in different states of the workflow if they kill."""


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the job, and all that can be said of it afterwards."""

    job: Job
    calls: tuple[Call, ...]
    struck: tuple[Call, ...]
    lines: tuple[bytes, ...]
    """The published lines in the order of the parts, without what is volatile."""
    journal: dict[str, Any]
    tokens: dict[str, int]
    submissions: tuple[Submission, ...]
    outcomes: dict[str, list[str]]
    difference: str
    said: str
    strays: tuple[str, ...]


@dataclass
class Matrix:
    """Of one provider."""

    provider: str
    ground: Ground
    tasks: ClassVar[frozenset[str]] = frozenset()
    """Only calls of these are struck; none named: of all."""
    strangers: ClassVar[frozenset[str]] = frozenset()
    """Markers of jobs that the run itself makes behind the ledger's back."""

    def __post_init__(self) -> None:
        self.undisturbed = self.live((), count_jobs=True)
        if wrong := self.faults_of(self.undisturbed):
            raise AssertionError(f"{self.provider}: the undisturbed run is not in order: {wrong}")

    def trials(self) -> list[Trial]:
        """Every call with every fault. A death at what moves the ledger, a provider, Step Functions or the bus is tried
        alone, with a retry and with a restart; so is a death at a write to S3 with a restart. The rest is tried in
        company: no two deaths in one state of the workflow."""
        calls = [call for call in self.undisturbed.calls if not self.tasks or call.task in self.tasks]
        alone = [(point,) for call in calls if call.writes for point in _alone(call)]
        first = [calls[0], *(call for before, call in pairwise(calls) if before.where[0] != call.where[0])]
        restarts = [(Point(call, Fault.BEFORE, restarts=True),) for call in first if not call.writes]
        return [*alone, *restarts, *_packed(calls)]

    def creates(self) -> list[Trial]:
        """Those of the calls that made a provider's job, all faults."""
        return [trial for trial in self.trials() if any(point.call.made_job for point in trial)]

    def violations(self, trials: Iterable[Trial]) -> Iterator[tuple[Point, list[str]]]:
        """Each point with what is wrong after it. When a run with several points ends badly, each is tried alone."""
        for trial in trials:
            wrong = self.try_out(trial)
            if wrong and len(trial) > 1:
                yield from self.violations((point,) for point in trial)
            else:
                yield from ((point, wrong) for point in trial)

    def try_out(self, trial: Trial) -> list[str]:
        """What is wrong after a run that was struck there, [] if nothing is."""
        try:
            life = self.live(trial)
        except Exception as error:
            return [f"the run ended with {type(error).__name__}: {error}"]
        if missed := {point.call.where for point in trial} - {call.where for call in life.struck}:
            return [f"calls that were not made again: {sorted(missed)}"]
        return self.faults_of(life)

    def faults_of(self, life: Life) -> list[str]:
        return faults_of(life, self.undisturbed, self.strangers)

    def live(self, trial: Trial, *, count_jobs: bool = False) -> Life:
        pipeline = self.begun(restarts=any(point.restarts for point in trial))
        plan = {point.call.where: point.fault for point in trial}
        self.ground.wire.begin(plan, self._jobs if count_jobs else None)
        said = self.ground.said
        with redirect_stdout(said), redirect_stderr(said):
            job = self.life_of(pipeline)
        return self.looked_over(pipeline, job)

    def life_of(self, pipeline: HandledPipeline) -> Job:
        """What happens in the run."""
        return pipeline.live(BODY)

    def begun(self, *, restarts: bool = False) -> HandledPipeline:
        """On empty ground, with the spec in its place and a record that fails once."""
        self.ground.empty()
        records = [{"fault": "error_500", "contains": f"{TITLE}-2."}]
        keys: dict[str, Any] = {"records": records, "durations": FASTEST, "limits": {"min_records": 1}}
        scenario(self.ground.simulator.control, **{**keys, **self.more})
        pipeline = self.pipeline(restarts=restarts)
        pipeline.push_spec(self.spec())
        self.ground.wire.begin({})
        return pipeline

    @property
    def more(self) -> dict[str, Any]:
        """Further keys of the scenario."""
        return {}

    def spec(self) -> str:
        return spec_of(self.provider)

    def pipeline(self, *, restarts: bool = False) -> HandledPipeline:
        """A driver on the ground as it is."""
        return HandledPipeline(self.ground, restarts=restarts)

    def _jobs(self) -> int:
        return len(self.ground.simulator.core.journal.entries.get("creates", ()))

    def looked_over(self, pipeline: HandledPipeline, job: Job) -> Life:
        wire, done = self.ground.wire, job.state.value == "COMPLETED"
        objects = pipeline.objects = self.ground.snapshot()
        return Life(
            job=job,
            calls=tuple(wire.calls),
            struck=tuple(wire.struck),
            lines=tuple(_published(objects, job)) if done else (),
            journal=self.ground.simulator.control.journal(),
            tokens=tokens_of(pipeline.certificate(job)) if done else {},
            submissions=tuple(self.ground.ledger.submissions(job.job_key)),
            outcomes={key: [row.outcome.value for row in rows] for key, rows in histories(objects, job).items()},
            difference=pipeline.verify(job).difference if done else "no certificate",
            said=self.ground.said.getvalue(),
            strays=tuple(wire.strays),
        )


def _alone(call: Call) -> Iterator[Point]:
    yield from (Point(call, fault, restarts=True) for fault in sorted(KILLS))
    if not call.of_s3:
        yield from (Point(call, fault) for fault in (*sorted(KILLS), Fault.SILENT))
    if not call.of_s3 and not call.of_ledger:
        yield Point(call, Fault.LOST)


def _packed(calls: Iterable[Call]) -> list[Trial]:
    """Per run and state of the workflow one death, or a handful of lost replies."""
    queues: list[list[list[Point]]] = []
    for _, made in groupby(calls, lambda call: call.where[0]):
        own = list(made)
        lost = [Point(call, Fault.LOST) for call in own if call.of_s3 or call.of_ledger or not call.writes]
        killed = [call for call in own if call.of_s3 or not call.writes]
        queues.append([[Point(call, fault)] for call in killed for fault in sorted(KILLS)])
        queues[-1] += [lost[start : start + LOST_AT_ONCE] for start in range(0, len(lost), LOST_AT_ONCE)]
    together = zip_longest(*queues, fillvalue=cast("list[Point]", []))
    return [tuple(point for points in row for point in points) for row in together]


def _published(objects: Objects, job: Job) -> Iterator[bytes]:
    for source in current(objects, job)["sources"].values():
        for part in source["parts"]:
            for line in objects.get(part["uri"].removeprefix(objects.uri(""))).splitlines():
                row = json.loads(line)
                yield json.dumps({name: value for name, value in row.items() if name not in VOLATILE}).encode()


def faults_of(life: Life, undisturbed: Life, strangers: frozenset[str] = frozenset()) -> list[str]:
    """What a run breaks of the promise, in words."""
    return [
        *_ending(life),
        *_jobs(life, strangers),
        *_records(life, undisturbed),
        *_bill(life, undisturbed),
        *_leaks(life),
    ]


def _ending(life: Life) -> Iterator[str]:
    job = life.job
    if (job.state.value, job.reason) != ("COMPLETED", ""):
        yield f"the job is {job.state.value} {job.reason}"
    if life.difference:
        yield f"the certificate does not verify: {life.difference}"
    if life.strays:
        yield f"calls outside the counted layers: {life.strays}"


def _jobs(life: Life, strangers: frozenset[str]) -> Iterator[str]:
    """At most one job per (submission, generation); another generation only where the first left no job."""
    made: dict[str, list[str]] = {}
    for create in life.journal["creates"]:
        made.setdefault(create["marker"], []).append(create["job_id"])
    yield from (f"{len(ids)} jobs for submission {marker}" for marker, ids in made.items() if len(ids) > 1)
    for row in life.submissions:
        where = f"attempt {row.attempt} shard {row.shard_id}"
        if row.generation - 1 != sum(look.complete for look in row.absences) + row.quota_refusals:
            yield f"{where}: generation {row.generation} without a proof of absence or a refusal"
        for generation in range(1, row.generation):
            earlier = made.pop(generation_key(row, generation), [])
            if lost := set(earlier) - {*row.ghosts, *row.earlier_jobs}:
                yield f"{where}: generation {generation} has a job that nobody accounts for: {sorted(lost)}"
        bound = made.pop(row.submission_key, [])
        if row.provider_job_id and row.provider_job_id not in bound:
            yield f"{where}: bound to {row.provider_job_id}, which is not a job of its marker"
    if unknown := made.keys() - strangers:
        yield f"jobs that no submission knows: {sorted(unknown)}"


def _records(life: Life, undisturbed: Life) -> Iterator[str]:
    if set(life.outcomes) != set(undisturbed.outcomes):
        yield f"records with an outcome: {sorted(life.outcomes)}"
    for key, classes in life.outcomes.items():
        if classes.count("succeeded") != 1 or classes[-1] != "succeeded":
            yield f"record {key} has no single final disposition: {classes}"
    keys = [json.loads(line)["business_key"] for line in life.lines]
    if len(keys) != len(set(keys)):
        yield f"published more than once: {keys}"
    if life.lines != undisturbed.lines:
        yield "the published rows differ from the undisturbed run's"


def _bill(life: Life, undisturbed: Life) -> Iterator[str]:
    billed = life.journal["tokens_billed"]
    if life.tokens != billed:
        yield f"the certificate counts {life.tokens}, the provider billed {billed}"
    if billed != undisturbed.journal["tokens_billed"]:
        yield f"the provider billed {billed}, undisturbed {undisturbed.journal['tokens_billed']}"
    if len(life.journal["creates"]) > len(undisturbed.journal["creates"]):
        yield f"{len(life.journal['creates'])} paid jobs, undisturbed {len(undisturbed.journal['creates'])}"


def _leaks(life: Life) -> Iterator[str]:
    yield from (f"the {what} is in what the functions wrote" for what, word in SECRETS.items() if word in life.said)


@contextmanager
def matrices(
    endpoint_url: str, names: Iterable[str], kinds: Iterable[type[Matrix]] = (Matrix,)
) -> Iterator[list[Matrix]]:
    """Of each kind one per provider, all on the same emulator and the same simulator."""
    with SimulatorServer("calm", clock_scale=0) as simulator, ground(endpoint_url, simulator) as made:
        yield [kind(name, made) for name in names for kind in kinds]


@contextmanager
def on_an_emulator(folder: Path, names: Iterable[str], kinds: Iterable[type[Matrix]]) -> Iterator[list[Matrix]]:
    from tests.support.local import ephemeral_emulator

    with ephemeral_emulator(folder) as endpoint_url, matrices(endpoint_url, names, kinds) as made:
        yield made

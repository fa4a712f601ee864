"""The crash matrix of what stands beside a job's usual path: its canary, the person who approves it, and the sweeps.

A stranger's job with a marker of ours is at the provider from the beginning. The first create of the job is not heard,
and a sweep adopts what it made before the next try looks for it. Once the job is sealed one sweep cancels the stranger,
and a day later the next deletes the job's files at the provider.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from tallybatch import settings, wiring
from tallybatch.contracts import SubmitReply, SweepReply
from tallybatch.domain.rows import Job
from tallybatch.domain.spec_file import parse_spec
from tests.crash.matrix import BODY, FASTEST, Life, Matrix, spec_of
from tests.support.handled import HandledPipeline

T = TypeVar("T")

STRANGER = "ab" * 32
"""The marker of the job that the ledger does not know."""
CANARY = "canary: {records: 3, min_acceptance: 0.5, approval: manual}\n"
KEPT_S = 25 * 3600
"""Longer than a sealed job's files stay at the provider."""


class SweptPipeline(HandledPipeline):
    """A sweep comes by whenever nobody knows what became of a create."""

    def task(self, name: str, call: Callable[[], T]) -> T:
        reply = super().task(name, call)
        if isinstance(reply, SubmitReply) and reply.status == "unknown":
            self.swept()
        return reply

    def swept(self, **request: Any) -> SweepReply:
        return self.task("Sweep", lambda: self.sweep(**request))


class Watched(Matrix):
    tasks: ClassVar[frozenset[str]] = frozenset({"JudgeCanary", "ApproveCanary", "Sweep"})
    strangers: ClassVar[frozenset[str]] = frozenset({STRANGER})

    @property
    def more(self) -> dict[str, Any]:
        return {
            "calls": [{"on": "create", "nth": 2, "fault": "lost_reply"}],
            "jobs": [{"nth": 1, "durations": {**FASTEST, "validating": 50_000}}],
        }

    def spec(self) -> str:
        return spec_of(self.provider) + CANARY

    def pipeline(self, *, restarts: bool = False) -> HandledPipeline:
        return SweptPipeline(self.ground, restarts=restarts)

    def life_of(self, pipeline: HandledPipeline) -> Job:
        assert isinstance(pipeline, SweptPipeline)
        self._stranger()
        pipeline.people.append(lambda: pipeline.approve(pipeline.reached.job_key if pipeline.reached else ""))
        job = pipeline.live(BODY)
        self._sweep_until_done(pipeline)
        pipeline.wait(KEPT_S)
        self._sweep_until_done(pipeline)
        return pipeline.job(job.job_key)

    def _sweep_until_done(self, pipeline: SweptPipeline) -> None:
        """What a sweep could not do at a provider that does not answer is left to the next, an hour later."""
        for _ in range(3):
            if not pipeline.swept(cancel=True).gaps:
                return
            pipeline.wait(3600)

    def faults_of(self, life: Life) -> list[str]:
        return [*super().faults_of(life), *self._swept(life)]

    def _stranger(self) -> None:
        """A job of one record, made as ours are made."""
        api = wiring.provider_api(settings.Sweep.load(), self.provider)
        spec = parse_spec(self.spec().encode(), file="spec")
        body = wiring.formats(spec).request_line("0" * 32, system="", user="Who are you?") + b"\n"
        place = f"provider/{STRANGER}/"
        self.ground.objects.put(f"{place}request.jsonl", body)
        api.create(
            submission_key=STRANGER,
            file_id=api.upload("request.jsonl", io.BytesIO(body), uri=self.ground.objects.uri(f"{place}request.jsonl")),
            endpoint=spec.endpoint,
            model=spec.model_resolved,
            output_uri=self.ground.objects.uri(place),
        )

    def _swept(self, life: Life) -> Iterator[str]:
        """What the sweeps left undone, or did to what is not theirs."""
        made = {entry["job_id"] for entry in life.journal["creates"] if entry["marker"] == STRANGER}
        cancelled = {entry["job_id"] for entry in life.journal["cancels"]}
        if cancelled != made:
            yield f"cancelled are {sorted(cancelled)}, the stranger is {sorted(made)}"
        if generations := [row.generation for row in life.submissions if row.generation > 1]:
            yield f"what a sweep could adopt was made anew: generations {generations}"
        if not life.job.provider_files_deleted_at:
            yield "the job's files at the provider are not told to be deleted"
        sent = [entry["file_id"] for entry in life.journal["uploads"]][1:]
        deleted = {entry.get("file_id") or entry["job_id"] for entry in life.journal["deletes"]}
        if left := set(sent) - deleted:
            yield f"request files left at the provider: {sorted(left)}"
        results = len(deleted.difference(sent))
        before = {entry.get("file_id") or entry["job_id"] for entry in self.undisturbed.journal["deletes"]}
        uploads = [entry["file_id"] for entry in self.undisturbed.journal["uploads"]]
        if results != len(before.difference(uploads)):
            yield f"{results} results are deleted at the provider, undisturbed {len(before.difference(uploads))}"

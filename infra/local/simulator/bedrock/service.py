"""Jobs as things that exist: keeps them, and moves them through their states on the virtual clock."""

from __future__ import annotations

import fnmatch
from dataclasses import asdict
from typing import Any

import orjson

from infra.local.simulator.bedrock.execution import Execution
from infra.local.simulator.bedrock.model import PROVIDER, ApiError, Job, Json, invalid, new_arn
from infra.local.simulator.bedrock.validation import MESSAGES, ValidationFailed, bucket_and_key, read_input
from infra.local.simulator.core import Core


class BedrockService:
    """Every state change is an action on the clock, so that its moment is exact however late anyone looks.

    Submitted and Validating last half of the scenario's `validating` each, Scheduled as long as `finalizing` (Bedrock
    has no such end, and a queue instead), Stopping as long as `cancelling`.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.reset()

    def reset(self) -> None:
        self.jobs: dict[str, Job] = {}
        self._by_token: dict[str, str] = {}
        self._runs: dict[str, Execution] = {}

    def create(self, request: Json) -> Job:
        """The job of this token, if there is one with the same request. Raises `ApiError`."""
        core, now = self._core, self._core.clock.now()
        token = str(request.get("clientRequestToken", ""))
        if known := self.jobs.get(self._by_token.get(token, "")):
            if known.request != request:
                raise ApiError(400, "ConflictException", "The token was used for a request with other parameters.")
            core.journal.record(PROVIDER, "resends", now, job_id=known.arn, marker=token)
            return known
        self._check_quota(str(request["modelId"]))
        plan = core.faults.job(PROVIDER)
        job = Job(
            arn=new_arn(),
            request=request,
            created_at=now,
            plan=plan,
            listed_from=now + float(plan.faults.get("invisible_in_list_for_s", 0)),
        )
        self.jobs[job.arn] = job
        if token:
            self._by_token[token] = job.arn
        core.journal.meter.enter(PROVIDER, str(request["modelId"]), job.arn)
        core.journal.created(
            PROVIDER, now, job_id=job.arn, marker=token, name=request["jobName"], model=request["modelId"]
        )
        half = plan.durations.validating / 2
        core.clock.call_at(now + half, lambda moment: self._move(job, "Submitted", "Validating", moment))
        core.clock.call_at(now + 2 * half, lambda moment: self._validated(job, moment))
        core.clock.call_at(job.expires_at, lambda moment: self._timed_out(job, moment))
        return job

    def _check_quota(self, model: str) -> None:
        scenario = self._core.scenario
        if any(fnmatch.fnmatchcase(model, pattern) for pattern in scenario.models.refuse):
            raise invalid("The provided model identifier is invalid.")
        limits = scenario.quota.concurrent_jobs
        limit = limits.get(model, limits.get("*"))
        freed_before = self._core.clock.now() - scenario.quota.release_delay_s
        active = sum(
            job.request["modelId"] == model and not (job.terminal and job.changed_at <= freed_before)
            for job in self.jobs.values()
        )
        if limit is not None and active >= limit:
            self._core.journal.meter.refused(PROVIDER, model)
            raise ApiError(
                400,
                "ServiceQuotaExceededException",
                f"The quota of in-progress and submitted batch inference jobs using {model} is {limit}.",
            )

    def job(self, identifier: str) -> Job:
        """By ARN or id, with counters as of now. Raises `ApiError` 404."""
        job = next((job for job in self.jobs.values() if identifier in (job.arn, job.id)), None)
        if job is None or job.gone:
            raise ApiError(404, "ResourceNotFoundException", "Could not find the model invocation job.")
        self._progress(job, self._core.clock.now())
        return job

    def stop(self, job: Job, moment: float) -> None:
        """Raises `ApiError` 400 when the job has ended or is stopping."""
        if job.terminal or job.status == "Stopping":
            raise ApiError(400, "ConflictException", f"A job that is {job.status} cannot be stopped.")
        self._progress(job, moment)
        job.shown_status = ""
        job.enter("Stopping", moment)
        self._core.clock.call_at(
            moment + job.plan.durations.cancelling, lambda at: self._end(job, "Stopped", at, only="Stopping")
        )

    def table(self) -> dict[str, dict[str, Any]]:
        rows = {}
        for job in self.jobs.values():
            self._progress(job, self._core.clock.now())
            counts = {"total": job.counts.total, "completed": job.counts.succeeded, "failed": job.counts.failed}
            rows[job.arn] = {
                "provider": PROVIDER,
                "state": job.status,
                "marker": job.token,
                "model": job.request["modelId"],
                "counts": counts,
                "tokens": job.tokens.counts(),
                "billed_nano_usd": job.tokens.nano_usd,
                "errors": [job.message] if job.message else [],
            }
        return rows

    # Transitions; each one does nothing if the job has gone another way in the meantime

    def _move(self, job: Job, before: str, after: str, moment: float) -> None:
        if job.status == before:
            job.enter(after, moment)

    def _validated(self, job: Job, moment: float) -> None:
        if job.status not in ("Submitted", "Validating"):
            return
        faults = job.plan.faults
        try:
            if "fail_validation" in faults:
                raise ValidationFailed(MESSAGES.get(faults["fail_validation"], faults["fail_validation"]))
            files = read_input(self._core.bedrock_store, job.input_uri, self._core.scenario.limits)
        except ValidationFailed as failed:
            job.message = str(failed)
            self._end(job, "Failed", moment)
            return
        every = (faults["only_error_file"] or "error_400") if "only_error_file" in faults else ""
        self._runs[job.arn] = Execution(job, files, self._core.faults, every)
        job.enter("Scheduled", moment)
        if job.plan.done == 0 and "expire" in faults:
            self._end(job, "Expired", moment)
        elif not (job.plan.done == 0 and "stuck" in faults):
            self._core.clock.call_at(moment + job.plan.durations.finalizing, lambda at: self._started(job, at))

    def _started(self, job: Job, moment: float) -> None:
        if job.status != "Scheduled":
            return
        job.enter("InProgress", moment)
        job.counts, job.tokens, job.counted = self._runs[job.arn].counts, self._runs[job.arn].tokens, True
        duration = job.plan.durations.in_progress
        if "unknown_state" in job.plan.faults:
            job.shown_status = "WaitingForCapacity"
        if "backwards" in job.plan.faults:
            self._core.clock.call_at(moment + duration / 2, lambda _: self._show(job, "Scheduled"))
        if "stuck" not in job.plan.faults:
            self._core.clock.call_at(moment + duration, lambda at: self._executed(job, at))

    def _show(self, job: Job, status: str) -> None:
        if job.status == "InProgress":
            job.shown_status = status

    def _progress(self, job: Job, moment: float) -> None:
        if job.status == "InProgress":
            run, duration = self._runs[job.arn], job.plan.durations.in_progress
            share = min(1.0, (moment - job.changed_at) / duration) if duration else 1.0
            run.run_until(int(run.total * share * job.plan.done))

    def _executed(self, job: Job, moment: float) -> None:
        if job.status != "InProgress":
            return
        self._progress(job, moment)
        faults = job.plan.faults
        if "vanish" in faults:
            job.gone = True
            self._end(job, "Failed", moment)
        elif "expire" in faults:
            self._end(job, "PartiallyCompleted", moment)
        elif "cancel" in faults:
            self.stop(job, moment)
        else:
            self._runs[job.arn].run_until(self._runs[job.arn].total)
            self._end(job, "Completed", moment)

    def _timed_out(self, job: Job, moment: float) -> None:
        """The timeout counts from submit: what never started expires, what runs ends with what it has."""
        if job.terminal or job.status == "Stopping":
            return
        self._progress(job, moment)
        self._end(job, "PartiallyCompleted" if job.status == "InProgress" else "Expired", moment)

    def _end(self, job: Job, status: str, moment: float, *, only: str = "") -> None:
        if only and job.status != only:
            return
        job.enter(status, moment)
        run = self._runs.pop(job.arn, None)
        core = self._core
        core.clock.call_at(moment + core.scenario.quota.release_delay_s, lambda _: core.journal.meter.leave(job.arn))
        if run is not None and status != "Expired":
            if "results_gone" not in job.plan.faults:
                self._write(job, run)
            core.journal.billed(PROVIDER, moment, job_id=job.arn, marker=job.token, tokens=run.tokens)
        core.journal.record(
            PROVIDER,
            "finished",
            moment,
            job_id=job.arn,
            marker=job.token,
            state=status,
            counts=asdict(job.counts),
            errors=[job.message] if job.message else [],
        )

    def _write(self, job: Job, run: Execution) -> None:
        """One `.out` per input file; a manifest for jobs that ran to an end of their own."""
        bucket, prefix = bucket_and_key(job.output_uri)
        base = f"{prefix.rstrip('/')}/{job.id}/" if prefix else f"{job.id}/"
        store = self._core.bedrock_store
        for name, body in run.outputs():
            store.put(bucket, base + name, body)
        if job.status != "Stopped":
            told = run.counts.to_json(job.wrong) | {
                "inputTokenCount": run.tokens.input,
                "outputTokenCount": run.tokens.output,
            }
            store.put(bucket, base + "manifest.json.out", orjson.dumps(told))

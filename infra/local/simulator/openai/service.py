"""Files and batches as things that exist: keeps them, moves batches through their states on the virtual clock."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import asdict
from typing import Any

from infra.local.simulator.core import Core
from infra.local.simulator.faults import JobPlan
from infra.local.simulator.openai.execution import PROVIDER, OpenAIExecution
from infra.local.simulator.openai.model import RESPONSES, ApiError, Batch, StoredFile, new_id
from infra.local.simulator.openai.validation import Validated, job_error, validate

HOUR_S = 3_600


class OpenAIService:
    """Every state change is an action on the clock, so that its moment is exact however late anyone looks."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.reset()

    def reset(self) -> None:
        self.files: dict[str, StoredFile] = {}
        self.batches: dict[str, Batch] = {}
        self._runs: dict[str, OpenAIExecution] = {}
        self._enqueued: Counter[str] = Counter()
        self._queued: dict[str, tuple[str, int]] = {}
        self._create_moments: deque[float] = deque()

    # Files

    def store(self, filename: str, purpose: str, data: bytes, *, live_s: float | None, moment: float) -> StoredFile:
        file = StoredFile(
            id=new_id("file-"),
            filename=filename,
            purpose=purpose,
            data=data,
            created_at=moment,
            expires_at=None if live_s is None else moment + live_s,
        )
        self.files[file.id] = file
        return file

    def file(self, file_id: str) -> StoredFile:
        """Raises `ApiError` 404 when it was never there, was deleted or has expired."""
        file = self.files.get(file_id)
        if file is None or (file.expires_at is not None and file.expires_at <= self._core.clock.now()):
            self.files.pop(file_id, None)
            raise ApiError(404, f"No such file: {file_id}", param="id")
        return file

    def living_files(self) -> list[StoredFile]:
        """Oldest first."""
        now = self._core.clock.now()
        return [file for file in self.files.values() if file.expires_at is None or file.expires_at > now]

    # Batches

    def batch(self, batch_id: str) -> Batch:
        """With counts as of now. Raises `ApiError` 404."""
        batch = self.batches.get(batch_id)
        if batch is None or batch.gone:
            raise ApiError(404, f"No batch with the id {batch_id!r}.", param="batch_id")
        self._progress(batch, self._core.clock.now())
        return batch

    def create(
        self, *, endpoint: str, input_file: StoredFile, metadata: dict[str, str] | None, output_live_s: float | None
    ) -> Batch:
        """Raises `ApiError` 429 above the hourly cap."""
        core, now = self._core, self._core.clock.now()
        while self._create_moments and self._create_moments[0] <= now - HOUR_S:
            self._create_moments.popleft()
        if len(self._create_moments) >= core.scenario.quota.creates_per_hour:
            wait_s = math.ceil(self._create_moments[0] + HOUR_S - now) if self._create_moments else HOUR_S
            raise ApiError(
                429,
                f"More than {core.scenario.quota.creates_per_hour} batches were created in one hour.",
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"retry-after": str(wait_s)},
            )
        self._create_moments.append(now)
        plan = core.faults.job(PROVIDER)
        batch = Batch(
            id=new_id("batch_"),
            endpoint=endpoint,
            input_file_id=input_file.id,
            metadata=metadata,
            created_at=now,
            expires_at=now + core.scenario.window_s,
            output_files_live_s=output_live_s or core.scenario.output_files_live_s,
            plan=plan,
            listed_from=now + float(plan.faults.get("invisible_in_list_for_s", 0)),
        )
        self.batches[batch.id] = batch
        core.journal.created(
            PROVIDER,
            now,
            job_id=batch.id,
            marker=batch.marker,
            metadata=metadata,
            endpoint=endpoint,
            input_file_id=input_file.id,
            input_bytes=len(input_file.data),
        )
        core.clock.call_at(now + plan.durations.validating, lambda moment: self._validated(batch, moment))
        core.clock.call_at(batch.expires_at, lambda moment: self._expire(batch, moment))
        return batch

    def add_strangers(self, count: int) -> None:
        """Batches that somebody else made and that have ended; only the list shows that they are there."""
        now, plan = self._core.clock.now(), JobPlan(self._core.scenario.durations, {}, 1.0)
        for _ in range(count):
            batch = Batch(
                id=new_id("batch_"),
                endpoint=RESPONSES,
                input_file_id=new_id("file-"),
                metadata=None,
                created_at=now,
                expires_at=now + self._core.scenario.window_s,
                output_files_live_s=self._core.scenario.output_files_live_s,
                plan=plan,
            )
            batch.enter("completed", now)
            self.batches[batch.id] = batch

    def cancel(self, batch: Batch, moment: float) -> None:
        """Raises `ApiError` 409 when the batch has ended."""
        if batch.terminal:
            raise ApiError(409, f"A batch that is {batch.status!r} cannot be cancelled.", code="batch_ended")
        if batch.status == "cancelling":
            return
        self._progress(batch, moment)
        batch.shown_status = ""
        batch.enter("cancelling", moment)
        self._core.clock.call_at(moment + batch.plan.durations.cancelling, lambda at: self._cancelled(batch, at))

    def jobs(self) -> dict[str, dict[str, Any]]:
        table = {}
        for batch in self.batches.values():
            self._progress(batch, self._core.clock.now())
            table[batch.id] = {
                "provider": PROVIDER,
                "state": batch.status,
                "marker": batch.marker,
                "model": batch.model,
                "counts": asdict(batch.counts),
                "tokens": batch.tokens.counts(),
                "billed_nano_usd": batch.tokens.nano_usd,
                "errors": [error["code"] for error in batch.errors or ()],
            }
        return table

    # Transitions; each one does nothing if the batch has gone another way in the meantime

    def _validated(self, batch: Batch, moment: float) -> None:
        if batch.status != "validating":
            return
        scenario = self._core.scenario
        found = Validated()
        file = self.files.get(batch.input_file_id)
        if "fail_validation" in batch.plan.faults:
            found.errors = [job_error(batch.plan.faults["fail_validation"])]
        elif file is None:
            found.errors = [job_error("file_not_found", param="input_file_id")]
        else:
            found = validate(file.data, endpoint=batch.endpoint, limits=scenario.limits, models=scenario.models)
            if not found.errors:
                found.errors = self._refused_by_quota(found)
        if found.errors or file is None:
            batch.errors = found.errors
            self._end(batch, "failed", moment)
            return
        self._enqueued[found.model] += found.prompt_tokens
        self._core.journal.meter.enter(PROVIDER, found.model, batch.id, found.prompt_tokens)
        batch.model = scenario.models.resolve.get(found.model, found.model)
        only_errors = batch.plan.faults.get("only_error_file")
        run = self._runs[batch.id] = OpenAIExecution(
            file.data,
            found.spans,
            batch_id=batch.id,
            endpoint=batch.endpoint,
            model=batch.model,
            seed=scenario.seed,
            faults=self._core.faults,
            every_record="" if only_errors is None else only_errors or "error_500",
        )
        self._queued[batch.id] = (found.model, found.prompt_tokens)
        batch.counts, batch.tokens = run.counts, run.tokens
        batch.enter("in_progress", moment)
        if "unknown_state" in batch.plan.faults:
            batch.shown_status = "waiting_for_capacity"
        if "stuck" not in batch.plan.faults:
            self._core.clock.call_at(moment + batch.plan.durations.in_progress, lambda at: self._executed(batch, at))

    def _refused_by_quota(self, found: Validated) -> list[dict[str, Any]]:
        quota = self._core.scenario.quota
        limit = quota.enqueued_tokens.get(found.model, quota.enqueued_tokens.get("*"))
        if limit is not None and self._enqueued[found.model] + found.prompt_tokens > limit:
            self._core.journal.meter.refused(PROVIDER, found.model)
            return [job_error("token_limit_exceeded", param="input_file_id")]
        billed = self._core.journal.tokens
        if quota.spend_cap_tokens is not None and billed.input + billed.output >= quota.spend_cap_tokens:
            return [job_error("billing_hard_limit_reached")]
        return []

    def _progress(self, batch: Batch, moment: float) -> None:
        if batch.status != "in_progress":
            return
        run, duration = self._runs[batch.id], batch.plan.durations.in_progress
        share = min(1.0, (moment - batch.moments["in_progress_at"]) / duration) if duration else 1.0
        run.run_until(int(run.total * share * batch.plan.done), moment)

    def _executed(self, batch: Batch, moment: float) -> None:
        if batch.status != "in_progress":
            return
        self._progress(batch, moment)
        batch.shown_status = ""
        if "vanish" in batch.plan.faults:
            batch.gone = True
            self._end(batch, "failed", moment)
        elif "expire" in batch.plan.faults:
            batch.expires_at = moment
            self._expire(batch, moment)
        elif "cancel" in batch.plan.faults:
            self.cancel(batch, moment)
        else:
            self._runs[batch.id].run_until(self._runs[batch.id].total, moment)
            batch.enter("finalizing", moment)
            if "backwards" in batch.plan.faults:
                half = moment + batch.plan.durations.finalizing / 2
                self._core.clock.call_at(half, lambda _: self._show(batch, "in_progress"))
            self._core.clock.call_at(moment + batch.plan.durations.finalizing, lambda at: self._completed(batch, at))

    def _show(self, batch: Batch, status: str) -> None:
        if batch.status == "finalizing":
            batch.shown_status = status

    def _completed(self, batch: Batch, moment: float) -> None:
        if batch.status == "finalizing":
            self._end(batch, "completed", moment)

    def _expire(self, batch: Batch, moment: float) -> None:
        if batch.terminal or batch.status == "cancelling":
            return
        self._progress(batch, moment)
        if batch.id in self._runs:
            self._runs[batch.id].abandon("batch_expired", "The completion window ended before this request ran.")
        self._end(batch, "expired", moment)

    def _cancelled(self, batch: Batch, moment: float) -> None:
        if batch.id in self._runs and self._core.scenario.cancelled_rows == "error_line":
            self._runs[batch.id].abandon("batch_cancelled", "The batch was cancelled before this request ran.")
        self._end(batch, "cancelled", moment)

    def _end(self, batch: Batch, status: str, moment: float) -> None:
        batch.shown_status = ""
        batch.enter(status, moment)
        run = self._runs.pop(batch.id, None)
        if run is not None:
            output, errors = run.files()
            batch.output_file_id = self._result(batch, "output", output, moment)
            batch.error_file_id = self._result(batch, "error", errors, moment)
            model, tokens = self._queued.pop(batch.id)
            release_at = moment + self._core.scenario.quota.release_delay_s
            self._core.clock.call_at(release_at, lambda _: self._release(batch.id, model, tokens))
            self._core.journal.billed(PROVIDER, moment, job_id=batch.id, marker=batch.marker, tokens=batch.tokens)
        self._core.journal.record(
            PROVIDER,
            "finished",
            moment,
            job_id=batch.id,
            marker=batch.marker,
            state=status,
            counts=asdict(batch.counts),
            errors=batch.errors,
        )

    def _release(self, batch_id: str, model: str, tokens: int) -> None:
        self._enqueued.subtract({model: tokens})
        self._core.journal.meter.leave(batch_id)

    def _result(self, batch: Batch, channel: str, data: bytes, moment: float) -> str | None:
        if not data:
            return None
        name = f"{batch.id}_{channel}.jsonl"
        file = self.store(name, "batch_output", data, live_s=batch.output_files_live_s, moment=moment)
        if "results_gone" in batch.plan.faults:
            del self.files[file.id]
        file.readable_from = moment + float(batch.plan.faults.get("content_404_for_s", 0))
        return file.id

"""Files and batches as things that exist: keeps them, moves batches through their states on the virtual clock."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict
from typing import Any

import orjson

from infra.local.simulator.core import Core
from infra.local.simulator.execution import Execution, Json
from infra.local.simulator.faults import JobPlan
from infra.local.simulator.gemini.bodies import GeminiLines
from infra.local.simulator.gemini.model import GENERATE, PROVIDER, RPC_NUMBERS, ApiError, Batch, StoredFile, new_id
from infra.local.simulator.gemini.validation import JobFault, Validated, validate

HOUR_S = 3_600
GENERATED_ID_CHARS = 36
"""After `batch-`: together longer than the 40 that files.get takes (googleapis/js-genai#1227)."""


class GeminiService:
    """Every state change is an action on the clock, so that its moment is exact however late anyone looks."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.reset()

    def reset(self) -> None:
        self.files: dict[str, StoredFile] = {}
        self.batches: dict[str, Batch] = {}
        self.uploads_answered = 0
        self._inputs: dict[str, bytes] = {}
        self._runs: dict[str, Execution] = {}
        self._enqueued: Counter[str] = Counter()
        self._create_moments: deque[float] = deque()

    def store(self, file: StoredFile) -> StoredFile:
        """Raises `ApiError` 429 when the project's storage is full."""
        held = sum(len(kept.data) for kept in self.files.values())
        if held + len(file.data) > self._core.scenario.gemini.storage_bytes:
            raise ApiError(429, "You have exceeded the file storage quota of your project.")
        self.files[file.name] = file
        return file

    def file(self, name: str) -> StoredFile:
        """Raises `ApiError` 404 when it was never there, was deleted or has expired."""
        file = self.files.get(name)
        if file is None or (file.expires_at is not None and file.expires_at <= self._core.clock.now()):
            self.files.pop(name, None)
            raise ApiError(404, f"The file {name} does not exist, or you may not read it.")
        return file

    def batch(self, name: str) -> Batch:
        """With counts as of now. Raises `ApiError` 404."""
        batch = self.batches.get(name)
        if batch is None or batch.gone:
            raise ApiError(404, f"Batch {name} not found.")
        self._progress(batch, self._core.clock.now())
        return batch

    def create(self, *, method: str, model: str, marker: str, input_file: str, data: bytes) -> Batch:
        """Not idempotent. Raises `ApiError` 429, whose text does not say which limit it is about."""
        core, now = self._core, self._core.clock.now()
        tokens = self._within_quota(method, model, data, now)
        self._create_moments.append(now)
        plan = core.faults.job(PROVIDER)
        batch = Batch(
            name=f"batches/{new_id(40)}",
            method=method,
            model=model,
            marker=marker,
            input_file=input_file,
            created_at=now,
            plan=plan,
            queued_tokens=tokens,
            listed_from=now + float(plan.faults.get("invisible_in_list_for_s", 0)),
        )
        self.batches[batch.name] = batch
        self._inputs[batch.name] = data
        self._enqueued[model] += tokens
        core.journal.meter.enter(PROVIDER, model, batch.name, tokens)
        core.journal.created(
            PROVIDER,
            now,
            job_id=batch.name,
            marker=marker,
            endpoint=method,
            model=model,
            input_file_id=input_file,
            input_bytes=len(data),
        )
        core.clock.call_at(now + plan.durations.validating, lambda moment: self._started(batch, moment))
        core.clock.call_at(now + core.scenario.gemini.window_s, lambda moment: self._end(batch, "EXPIRED", moment))
        return batch

    def add_strangers(self, count: int) -> None:
        """Batches that somebody else made and that have ended; only the list shows that they are there."""
        now, plan = self._core.clock.now(), JobPlan(self._core.scenario.durations, {}, 1.0)
        for _ in range(count):
            name = f"batches/{new_id(40)}"
            batch = Batch(name, GENERATE, "gemini-2.5-flash", "somebody's", "", created_at=now, plan=plan)
            batch.enter("SUCCEEDED", now)
            self.batches[name] = batch

    def cancel(self, batch: Batch, moment: float) -> None:
        """Raises `ApiError` 400 when the batch has ended. There is no state for being cancelled."""
        if batch.terminal:
            raise ApiError(400, f"Batch {batch.name} has ended already.", status="FAILED_PRECONDITION")
        self._progress(batch, moment)
        self._core.clock.call_at(moment + batch.plan.durations.cancelling, lambda at: self._end(batch, "CANCELLED", at))

    def delete(self, batch: Batch, moment: float) -> None:
        """Stops it, and its results are gone."""
        self._end(batch, "CANCELLED", moment)
        batch.gone = True
        if batch.output_file is not None:
            self.files.pop(batch.output_file, None)

    def jobs(self) -> dict[str, dict[str, Any]]:
        table = {}
        for batch in self.batches.values():
            self._progress(batch, self._core.clock.now())
            table[batch.name] = {
                "provider": PROVIDER,
                "state": batch.state,
                "marker": batch.marker,
                "model": batch.model,
                "counts": asdict(batch.counts),
                "tokens": batch.tokens.counts(),
                "billed_nano_usd": batch.tokens.nano_usd,
                "errors": [batch.error["code"]] if batch.error else [],
            }
        return table

    def _within_quota(self, method: str, model: str, data: bytes, now: float) -> int:
        """The prompt tokens of a job that may be created."""
        quota, options = self._core.scenario.quota, self._core.scenario.gemini
        while self._create_moments and self._create_moments[0] <= now - HOUR_S:
            self._create_moments.popleft()
        alive = sum(not batch.terminal for batch in self.batches.values())
        tokens = validate(data, method=method, most=self._core.scenario.limits.max_requests).prompt_tokens
        limit = quota.enqueued_tokens.get(model, quota.enqueued_tokens.get("*"))
        over = (
            alive >= options.concurrent_jobs,
            len(self._create_moments) >= quota.creates_per_hour,
            limit is not None and self._enqueued[model] + tokens > limit,
        )
        if any(over):
            self._core.journal.meter.refused(PROVIDER, model)
            details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "60s"}]
            raise ApiError(429, "You exceeded your current quota, please check your plan.", details=details)
        return tokens

    # Transitions; each one does nothing if the batch has gone another way in the meantime

    def _started(self, batch: Batch, moment: float) -> None:
        if batch.state != "PENDING" or ("stuck" in batch.plan.faults and batch.plan.done == 0):
            return
        scenario, faults = self._core.scenario, batch.plan.faults
        found = validate(self._inputs[batch.name], method=batch.method, most=scenario.limits.max_requests)
        problem = JobFault.of_scenario(faults["fail_validation"]) if "fail_validation" in faults else found.problem
        if problem is not None:
            batch.error = {"code": RPC_NUMBERS[problem.status], "message": problem.message}
            self._end(batch, "FAILED", moment)
            return
        self._runs[batch.name] = self._execution(batch, found)
        batch.counts = self._runs[batch.name].counts
        batch.tokens = self._runs[batch.name].tokens
        batch.running_at = moment
        batch.enter("RUNNING", moment)
        if "unknown_state" in faults:
            batch.shown_state = "WAITING_FOR_CAPACITY"
        if "stuck" not in faults:
            self._core.clock.call_at(moment + batch.plan.durations.in_progress, lambda at: self._executed(batch, at))

    def _release(self, batch: Batch) -> None:
        self._enqueued.subtract({batch.model: batch.queued_tokens})
        self._core.journal.meter.leave(batch.name)

    def _execution(self, batch: Batch, found: Validated) -> Execution:
        only_errors = batch.plan.faults.get("only_error_file")
        model = self._core.scenario.models.resolve.get(batch.model, batch.model)
        return Execution(
            self._inputs[batch.name],
            found.spans,
            dialect=GeminiLines(batch.method, model),
            seed=self._core.scenario.seed,
            faults=self._core.faults,
            every_record="" if only_errors is None else only_errors or "error_400",
            one_file=True,
        )

    def _progress(self, batch: Batch, moment: float) -> None:
        if batch.state != "RUNNING" or batch.name not in self._runs:
            return
        run, duration = self._runs[batch.name], batch.plan.durations.in_progress
        share = min(1.0, (moment - batch.running_at) / duration) if duration else 1.0
        run.run_until(int(run.total * share * batch.plan.done), moment)

    def _executed(self, batch: Batch, moment: float) -> None:
        if batch.state != "RUNNING":
            return
        self._progress(batch, moment)
        batch.shown_state = ""
        faults = batch.plan.faults
        if "vanish" in faults:
            batch.gone = True
            self._end(batch, "FAILED", moment)
        elif "expire" in faults:
            self._end(batch, "EXPIRED", moment)
        elif "cancel" in faults:
            self._end(batch, "CANCELLED", moment)
        else:
            self._runs[batch.name].run_until(self._runs[batch.name].total, moment)
            if "backwards" in faults:
                batch.shown_state = "PENDING"
            self._core.clock.call_at(
                moment + batch.plan.durations.finalizing, lambda at: self._end(batch, "SUCCEEDED", at)
            )

    def _end(self, batch: Batch, state: str, moment: float) -> None:
        if batch.terminal:
            return
        batch.shown_state = ""
        self._progress(batch, moment)
        batch.enter(state, moment)
        run = self._runs.pop(batch.name, None)
        release_at = moment + self._core.scenario.quota.release_delay_s
        self._core.clock.call_at(release_at, lambda _: self._release(batch))
        keeps = state == "SUCCEEDED" or (state == "CANCELLED" and self._core.scenario.gemini.cancelled_output)
        if run is not None:
            if keeps and not batch.gone:
                self._result(batch, run.files()[0], moment)
                self._core.journal.billed(PROVIDER, moment, job_id=batch.name, marker=batch.marker, tokens=batch.tokens)
            else:
                batch.tokens = type(batch.tokens)()
        self._core.journal.record(
            PROVIDER,
            "finished",
            moment,
            job_id=batch.name,
            marker=batch.marker,
            state=state,
            counts=asdict(batch.counts),
            errors=batch.error,
        )

    def _result(self, batch: Batch, data: bytes, moment: float) -> None:
        if "empty_string_ids" in batch.plan.faults:
            batch.output_file = ""
        elif not batch.input_file:
            batch.inline_output = self._inlined(data)
        elif data or batch.state == "SUCCEEDED":
            file = StoredFile(
                name=f"files/batch-{new_id(GENERATED_ID_CHARS)}",
                display_name="",
                mime_type="jsonl",
                data=data,
                created_at=moment,
                expires_at=moment + self._core.scenario.output_files_live_s,
                generated=True,
                readable_from=moment + float(batch.plan.faults.get("content_404_for_s", 0)),
            )
            batch.output_file = file.name
            if "results_gone" not in batch.plan.faults:
                self.files[file.name] = file

    def _inlined(self, data: bytes) -> list[Json]:
        shown = []
        for line in filter(None, data.split(b"\n")):
            row = orjson.loads(line)
            key = row.pop("key", "")
            shown.append({**row, "metadata": {"key": key}} if self._core.scenario.gemini.inline_metadata else row)
        return shown

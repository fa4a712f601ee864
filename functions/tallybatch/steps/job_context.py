"""What every step needs of a job: its manifest, its spec as it was, and its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tallybatch.domain.errors import Permanent
from tallybatch.domain.identity import RecordIdentity
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.retention import RetentionClass, retention_tag
from tallybatch.domain.retries import RaisedCap, RetryPolicy, ReviewClass
from tallybatch.domain.rows import Job
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec
from tallybatch.ports import Objects

NANO_USD = 1_000_000_000
"""Nano-dollars of a dollar; specs have no finer amounts."""


@dataclass(frozen=True, slots=True)
class JobContext:
    manifest: Manifest
    spec: Spec
    keys: JobKeys

    @property
    def identity(self) -> RecordIdentity:
        return self.spec.identity(self.manifest.tenant)

    @property
    def retry_policy(self) -> RetryPolicy:
        retry, limits = self.spec.retry, self.spec.limits
        raised, base = retry.raise_output_cap, self.spec.generation.get("max_output_tokens")
        few = {ReviewClass.TOO_FEW} if retry.small_set == "review" else set()
        cost = limits.max_cost_per_record_usd
        return RetryPolicy(
            retry.max_attempts,
            retry.backoff.total_seconds(),
            retry.retry_unqualified,
            frozenset(map(ReviewClass, self.spec.review.classes)) | few,
            max_tokens=limits.max_tokens_per_record,
            max_nano_usd=int(cost * NANO_USD) if cost is not None else None,
            raised_cap=RaisedCap(base, raised.factor, raised.max) if raised is not None and base else None,
            feedback=retry.feedback,
            window=retry.window_s,
            fallbacks=len(self.spec.fallback),
        )

    def at(self, target: int) -> JobContext:
        """The job as it is at a target, by its place in `Spec.targets`: the spec has its provider, model and endpoint.
        The manifest always names the first."""
        return replace(self, spec=self.spec.targets[target]) if target else self

    def for_target(self, provider: str, model: str) -> JobContext:
        """As `at`, by provider and resolved model; "" as model is the first target."""
        if not model:
            return self
        places = [there.place for there in self.spec.targets]
        if (provider, model) not in places:
            raise Permanent(
                f"{provider} {model} is no target of the job's spec",
                where=f"job {self.manifest.job_key}",
                do="look at the job's spec.yaml: its plan and its spec do not belong together",
            )
        return self.at(places.index((provider, model)))

    @property
    def codes(self) -> Mapping[str, OutcomeClass]:
        """The classes that the spec gives to codes, whatever the provider's table says."""
        return {code: OutcomeClass(word) for code, word in self.spec.retry.codes.items()}

    @property
    def has_canary(self) -> bool:
        return self.manifest.canary_records > 0

    def in_canary(self, job: Job, attempt: int) -> bool:
        """Whether an attempt holds records of the canary only."""
        return self.has_canary and (not job.released or attempt <= job.released)

    def retention(self, kind: RetentionClass) -> str:
        """The tag of an object of this job, as `Objects.put_once` takes it."""
        return retention(self.spec, kind)


def retention(spec: Spec, kind: RetentionClass) -> str:
    """The class where the spec is silent, else the days that it asks for."""
    asked = kind in spec.retention.model_fields_set
    return retention_tag(kind, getattr(spec.retention, kind).days if asked else None)


def load_job(objects: Objects, tenant: str, job_key: str) -> JobContext:
    """Raises `NotFound` for a job that has no manifest (one whose input was refused)."""
    keys = JobKeys(tenant, job_key)
    manifest = Manifest.model_validate_json(objects.get(keys.manifest))
    return JobContext(manifest, _spec(objects.get(keys.spec), keys.spec), keys)


def spec_of_run(objects: Objects, context: JobContext, digest: str) -> Spec:
    """The spec that a run of the job began with, by its digest; "" is the first one's. What shapes a record's identity
    or an answer is the same in all of them, so only gates, limits and the like are to be read from it."""
    if digest in ("", context.manifest.spec_digest):
        return context.spec
    key = context.keys.spec_of_run(digest)
    return _spec(objects.get(key), key)


@lru_cache(maxsize=32)
def _spec(data: bytes, file: str) -> Spec:
    """A function that works on a job's shards one after the other reads the same bytes each time."""
    return parse_spec(data, file=file)

"""What every step needs of a job: its manifest, its spec as it was, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tallybatch.domain.identity import RecordIdentity
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.retention import RetentionClass, retention_tag
from tallybatch.domain.retries import RetryPolicy
from tallybatch.domain.rows import Job
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec
from tallybatch.ports import Objects


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
        retry = self.spec.retry
        return RetryPolicy(retry.max_attempts, retry.backoff.total_seconds(), retry.retry_unqualified)

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


@lru_cache(maxsize=32)
def _spec(data: bytes, file: str) -> Spec:
    """A function that works on a job's shards one after the other reads the same bytes each time."""
    return parse_spec(data, file=file)

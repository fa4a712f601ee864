"""Where things are in the bucket: every S3 key is made here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallybatch.domain.errors import BadInput, Problem

INBOX = "inbox/"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Tenants and specs: safe in a key, a metric and a shell."""
UNPLACED = "_unplaced"
"""Tenant under which a file is filed whose key names none."""


@dataclass(frozen=True, slots=True)
class InboxKey:
    """`inbox/<tenant>/<spec>/<dataset_version>/<name>.jsonl[.gz]`, taken apart."""

    key: str
    tenant: str
    spec: str
    dataset_version: str
    name: str

    @property
    def gzipped(self) -> bool:
        return self.name.endswith(".gz")


def parse_inbox_key(key: str) -> InboxKey:
    """Raises `BadInput` for a key that names no tenant, spec, dataset version and .jsonl file."""
    parts = key.removeprefix(INBOX).split("/")
    problems = []
    if not key.startswith(INBOX) or len(parts) != 4:
        shape = f"{INBOX}<tenant>/<spec>/<dataset_version>/<name>.jsonl[.gz]"
        problems.append(Problem(f"the key must have the form {shape}", key="key", code="wrong_prefix_depth"))
    else:
        for what, part in zip(("tenant", "spec"), parts[:2], strict=True):
            if not NAME.fullmatch(part):
                problems.append(Problem(f"{what} {part!r} must match {NAME.pattern}", key=what, code="bad_name"))
        if not parts[2] or len(parts[2]) > 128 or not parts[2].isprintable() or parts[2] in (".", ".."):
            reason = "the dataset version must have 1 to 128 printable characters, and not be `.` or `..`"
            problems.append(Problem(reason, key="dataset_version", code="bad_name"))
        if not parts[3].endswith((".jsonl", ".jsonl.gz")):
            problems.append(Problem("the name must end in .jsonl or .jsonl.gz", key="name", code="wrong_suffix"))
    if problems:
        raise BadInput("the file is in the wrong place", problems, where=key, do="move it and drop it again")
    return InboxKey(key, *parts)


def tenant_of(key: str) -> str:
    """The tenant of an inbox key if it names one that is usable, for filing what cannot be parsed."""
    parts = key.removeprefix(INBOX).split("/")
    return parts[0] if len(parts) > 1 and NAME.fullmatch(parts[0]) else UNPLACED


def spec_key(tenant: str, spec: str) -> str:
    return f"specs/{tenant}/{spec}.yaml"


def price_keys(tenant: str) -> tuple[str, str]:
    """The user's own prices, the nearest first: of one tenant, and of all."""
    return f"prices/tenants/{tenant}.yaml", "prices/prices.yaml"


def golden_key(tenant: str, file: str) -> str:
    """Where users put their labelled records."""
    return f"golden/{tenant}/{file}"


def latest_key(tenant: str, spec: str) -> str:
    """Names the newest job of a spec that was published, over all dataset versions."""
    return f"results/{tenant}/{spec}/latest.json"


@dataclass(frozen=True, slots=True)
class JobKeys:
    """Keys of one job's objects."""

    tenant: str
    job_key: str

    @property
    def prefix(self) -> str:
        return f"jobs/{self.tenant}/{self.job_key}/"

    @property
    def manifest(self) -> str:
        return self.prefix + "manifest.json"

    @property
    def spec(self) -> str:
        """The spec as it was when the job began, byte for byte."""
        return self.prefix + "spec.yaml"

    def spec_of_run(self, digest: str) -> str:
        """The spec that a later run of the job began with, where it is not the first one's."""
        return f"{self.prefix}specs/{digest}.yaml"

    def golden(self, sha256: str) -> str:
        """The labels of the golden file as it was when a run began."""
        return f"{self.prefix}golden/{sha256}.jsonl"

    @property
    def plan(self) -> str:
        """What the job would take, of a dry run."""
        return self.prefix + "plan.json"

    @property
    def certificate(self) -> str:
        return self.prefix + "certificate.json"

    @property
    def deletions(self) -> str:
        """Which files were deleted at the provider after the job was sealed. Not below the job's prefix, all of which
        the certificate covers."""
        return f"deletions/{self.tenant}/{self.job_key}.json"

    @property
    def report_json(self) -> str:
        return self.prefix + "report.json"

    @property
    def report_html(self) -> str:
        return self.prefix + "report.html"

    def shard(self, sha256: str) -> str:
        return f"{self.prefix}shards/{sha256}.jsonl.zst"

    @property
    def attempts(self) -> str:
        return self.prefix + "attempts/"

    def attempt(self, attempt: int) -> str:
        return f"{self.attempts}{attempt}/"

    def items(self, attempt: int) -> str:
        """The shards of an attempt, as ShardMap reads them."""
        return self.attempt(attempt) + "shards.json"

    def wave_items(self, attempt: int, begin: int, end: int) -> str:
        """A slice of `items`: shards that are let go together."""
        return f"{self.attempt(attempt)}shards-{begin}-{end}.json"

    def sample(self, attempt: int) -> str:
        """How the canary represents the job."""
        return self.attempt(attempt) + "sample.json"

    def canary(self, attempt: int) -> str:
        """The judgement on the canary."""
        return self.attempt(attempt) + "canary.json"

    def approval(self, attempt: int) -> str:
        """Who decided on the canary, when, and why."""
        return self.attempt(attempt) + "approval.json"

    def no_items(self, attempt: int) -> str:
        """The empty list that a cancelled job's ShardMap reads; also of a certified job whose run failed."""
        return self.attempt(attempt) + "no-shards.json"

    def open_records(self, attempt: int, sha256: str) -> str:
        """What reconciliation left to do after an attempt; PlanAttempt builds the next one from it."""
        return f"{self.attempt(attempt)}open-{sha256[:16]}.jsonl.zst"

    def review_records(self, attempt: int, sha256: str) -> str:
        """The records that people decide about, as they are after an attempt."""
        return f"{self.attempt(attempt)}review-{sha256[:16]}.jsonl.zst"

    def closure(self, attempt: int) -> str:
        return self.attempt(attempt) + "closure.json"

    def judgement(self, attempt: int) -> str:
        """What the gates say of the job, once its sets close."""
        return self.attempt(attempt) + "judgement.json"

    def publish_items(self, attempt: int, sha256: str) -> str:
        return f"{self.attempt(attempt)}publish-{sha256[:16]}.json"

    def published(self, attempt: int, shard_id: str) -> str:
        """Which part holds a shard's accepted rows."""
        return f"{self.attempt(attempt)}published/{shard_id}.json"

    def submission(self, attempt: int, submission_key: str) -> str:
        return f"{self.attempt(attempt)}{submission_key}/"

    def claims(self, attempt: int, submission_key: str) -> str:
        """Records of the shard that are not sent, and why: answered already, or in flight for another job."""
        return self.submission(attempt, submission_key) + "claims.jsonl.zst"

    def request(self, attempt: int, submission_key: str) -> str:
        return self.submission(attempt, submission_key) + "request.jsonl"

    def raw(self, attempt: int, submission_key: str, channel: str) -> str:
        return f"{self.submission(attempt, submission_key)}raw/{channel}"

    def provider_output(self, submission_key: str) -> str:
        """Where a provider that writes into our bucket (Bedrock) puts its results; collected into raw/ from there."""
        return f"provider/{self.tenant}/{self.job_key}/{submission_key}/"

    def calls(self, submission_key: str) -> str:
        """Where single calls leave their intents and replies; collected into raw/ from there."""
        return self.provider_output(submission_key) + "calls/"

    def outcomes(self, attempt: int, submission_key: str) -> str:
        return self.submission(attempt, submission_key) + "outcomes.jsonl.zst"

    def decisions(self, attempt: int) -> str:
        """What people decided, as the attempt that carries it out has it."""
        return self.attempt(attempt) + "review/decisions.jsonl"

    def audit(self, attempt: int) -> str:
        """Who decided that, and when."""
        return self.attempt(attempt) + "review/audit.json"

    def acknowledgement(self, attempt: int) -> str:
        """Who acknowledged the unknown ids that were there after an attempt, and when."""
        return self.attempt(attempt) + "acknowledged.json"

    @property
    def later_certificates(self) -> str:
        """Prefix of the certificates of partial publications, and of those that replace the first one."""
        return self.prefix + "certificates/"

    def later_certificate(self, attempt: int) -> str:
        return f"{self.later_certificates}{attempt:06d}.json"

    def attempt_certified(self, key: str) -> int:
        """Of which attempt a key is the later certificate; 0 for a key that is none."""
        digits = key.removeprefix(self.later_certificates).removesuffix(".json")
        attempt = int(digits) if digits.isascii() and digits.isdecimal() else 0
        return attempt if key == self.later_certificate(attempt) else 0

    @property
    def review(self) -> str:
        """Prefix of what people look at, and of what they hand in."""
        return f"review/{self.tenant}/{self.job_key}/"

    def review_queue(self, attempt: int) -> str:
        """The records that wait for people after an attempt."""
        return f"{self.review}queue-{attempt:06d}.jsonl"

    @property
    def review_sample(self) -> str:
        """Accepted records that people look at."""
        return self.review + "sample.jsonl"

    def review_handed_in(self, sha256: str) -> str:
        """A file of decisions as it was given."""
        return f"{self.review}in/{sha256}.jsonl"

    def review_decisions(self, sha256: str) -> str:
        """The decisions of a file that are to be carried out."""
        return f"{self.review}decisions/{sha256}.jsonl"

    def bad_lines(self) -> str:
        return f"quarantine/{self.tenant}/{self.job_key}/bad_lines.jsonl"

    def unknown_ids(self, submission_key: str) -> str:
        return f"quarantine/{self.tenant}/{self.job_key}/unknown-{submission_key}.jsonl"


@dataclass(frozen=True, slots=True)
class ResultKeys:
    """Keys of one dataset version's published results."""

    tenant: str
    spec: str
    dataset_version: str

    @property
    def prefix(self) -> str:
        return f"results/{self.tenant}/{self.spec}/{self.dataset_version}/"

    @property
    def current(self) -> str:
        return self.prefix + "current.json"

    def part(self, sha256: str, *, gzipped: bool) -> str:
        return f"{self.prefix}parts/{sha256}.jsonl" + (".gz" if gzipped else "")

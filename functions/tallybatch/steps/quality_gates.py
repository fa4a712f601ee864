"""Judge a closed job by its gates. ReconcileJob writes the judgement; publishing asks for it, and verify repeats it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from tallybatch.domain.closure import Closure, SubmissionEntry
from tallybatch.domain.errors import Conflict, NotClosed, ObjectDamaged
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.outcomes import ACCEPTED, NO_OUTPUT, OVERRULING, OutcomeClass
from tallybatch.domain.quality_gates import Judgement, judge
from tallybatch.domain.quality_golden import GoldenFigures, GoldenTally, labels_from_bytes
from tallybatch.domain.quality_labels import Labels, LabelTally, merged
from tallybatch.domain.review import PEOPLE
from tallybatch.domain.rows import Job
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.domain.spec import Spec
from tallybatch.ports import Objects
from tallybatch.steps.job_context import JobContext, spec_of_run
from tallybatch.steps.outcome_files import outcome_lines


class _Answer(msgspec.Struct, frozen=True, gc=False):
    """What a gate needs of an outcome line; decoding skips the rest."""

    record_id: str
    business_key: str
    outcome: OutcomeClass
    output: msgspec.Raw = NO_OUTPUT


class _Member(msgspec.Struct, frozen=True, gc=False):
    business_key: str


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_member = msgspec.json.Decoder(_Member).decode
_decode_judgement = msgspec.json.Decoder(Judgement).decode


def judgement_after(closure: Closure, job: Job, context: JobContext, objects: Objects) -> Judgement:
    """The judgement of a closed job, by the terms of its run; made now if there is none. Of several that race, the
    first stays."""
    key = context.keys.judgement(closure.attempt)
    if objects.head(key) is None:
        made = judgement(
            context,
            objects,
            attempt=closure.attempt,
            expected=closure.expected,
            succeeded=closure.succeeded,
            submissions=closure.submissions,
            spec_digest=job.spec_digest or context.manifest.spec_digest,
            golden_sha256=job.golden_sha256,
        )
        body = msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
        with suppress(Conflict):
            objects.put_once(key, body, content_type="application/json", retention=context.retention("results"))
    return read_judgement(context, closure.attempt, objects)


def read_judgement(context: JobContext, attempt: int, objects: Objects) -> Judgement:
    """Raises `NotFound` before the sets have closed."""
    return _decode_judgement(objects.get(context.keys.judgement(attempt)))


def require_passed(context: JobContext, attempt: int, objects: Objects) -> None:
    """Raises `NotClosed` for a job that its gates stop."""
    found = read_judgement(context, attempt, objects)
    if not found.passed:
        raise NotClosed(
            "publishing is refused: the job does not pass its gates",
            where=f"job {found.job_key}",
            why=found.reason,
            do="look at the report",
        )


def judgement(
    context: JobContext,
    objects: Objects,
    *,
    attempt: int,
    expected: int,
    succeeded: int,
    submissions: Sequence[SubmissionEntry],
    spec_digest: str,
    golden_sha256: str,
) -> Judgement:
    """A function of stored objects alone. Reads answers only where labels are to be compared."""
    spec = spec_of_run(objects, context, spec_digest)
    golden = _golden_figures(spec, golden_sha256, context, submissions, objects) if golden_sha256 else None
    return Judgement(
        job_key=context.manifest.job_key,
        attempt=attempt,
        spec_digest=spec_digest,
        golden=golden,
        gates=judge(spec.quality, expected=expected, succeeded=succeeded, golden=golden),
    )


def _golden_figures(
    spec: Spec, sha256: str, context: JobContext, submissions: Sequence[SubmissionEntry], objects: Objects
) -> GoldenFigures | None:
    golden, key = spec.quality.golden, context.keys.golden(sha256)
    if golden is None:
        return None
    data = objects.get(key)
    if sha256_hex(data) != sha256:
        raise ObjectDamaged("the golden labels are not those that were pinned", where=objects.uri(key))
    tally = GoldenTally(labels_from_bytes(data), golden.field)
    for shard in context.manifest.shards:
        with objects.open(context.keys.shard(shard.sha256)) as stream:
            for line in read_zstd_lines(stream):
                tally.expect(_decode_member(line).business_key)
    for answer in _accepted(submissions, objects):
        tally.answer(answer.business_key, answer.output)
    return tally.figures(sha256)


def _accepted(submissions: Sequence[SubmissionEntry], objects: Objects) -> Iterator[_Answer]:
    """Accepted rows of every outcome object once, in the order of attempts, without those that people withdrew."""
    withdrawn = _withdrawn(submissions, objects)
    for entry in sorted(submissions, key=lambda entry: (entry.attempt, entry.shard_id)):
        if entry.outcomes:
            for line in outcome_lines(objects, entry.outcomes):
                answer = _decode_answer(line)
                if answer.outcome in ACCEPTED and entry.attempt > withdrawn.get(answer.record_id, 0):
                    yield answer


def _withdrawn(submissions: Sequence[SubmissionEntry], objects: Objects) -> dict[str, int]:
    """The last attempt in which people overruled what stood, by record_id."""
    overruled: dict[str, int] = {}
    for entry in submissions:
        if entry.provider == PEOPLE and entry.outcomes:
            for answer in map(_decode_answer, outcome_lines(objects, entry.outcomes)):
                if answer.outcome in OVERRULING:
                    overruled[answer.record_id] = max(entry.attempt, overruled.get(answer.record_id, 0))
    return overruled


def label_distribution(context: JobContext, closure: Closure, objects: Objects) -> Labels:
    """Of the answers of a job that is not published; of one that is, its parts have been counted while they were
    written."""
    tally = LabelTally(context.spec.output.schema_)
    for answer in _accepted(closure.submissions, objects):
        tally.add(answer.output)
    return merged([tally.labels])

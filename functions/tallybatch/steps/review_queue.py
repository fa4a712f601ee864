"""What people are shown: the records in review with all that came back for them, and the sample of accepted ones.

Written under review/ when a job is sealed. Memory holds one shard of the manifest at a time.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from typing import BinaryIO, NamedTuple, cast

import msgspec

from tallybatch.contracts import PublishItem
from tallybatch.domain.closure import Closure, ReviewRecord
from tallybatch.domain.errors import Conflict, NotFound
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lines import CHUNK_BYTES, newline_split
from tallybatch.domain.outcomes import (
    ACCEPTED,
    NO_OUTPUT,
    NOTHING_USED,
    OVERRULING,
    Outcome,
    OutcomeClass,
    RawRef,
    RecordResult,
)
from tallybatch.domain.quality import AnswerCheck
from tallybatch.domain.records import ShardRecord
from tallybatch.domain.review import PEOPLE, SAMPLED, Candidate, ReviewItem, Sampler, by_shard, decode_entry, stratum_of
from tallybatch.domain.rows import NOBODY, Job, RecordClaim
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.ports import META, Formats, Ledger, Objects, ProviderFormat
from tallybatch.steps.job_context import JobContext
from tallybatch.steps.outcome_files import read_outcomes
from tallybatch.steps.review_decisions import standing_decisions
from tallybatch.steps.submission_input import shard_records

_CLAIM_BATCH = 1000
_decode_items = msgspec.json.Decoder(list[dict[str, object]]).decode
_decode_record = msgspec.json.Decoder(ReviewRecord).decode
_encode = msgspec.json.Encoder().encode


def queue_lines(job: Job, keys: JobKeys, objects: Objects) -> Iterator[bytes]:
    """What lies in the queue of a job that has ended, as it is stored: what its last attempt left to people, and then
    the sample, of which a part may be decided. Raises `NotFound` where the last run failed before it wrote the queue.
    """
    if job.counts.get("in_review") and objects.head(keys.review_queue(job.attempt)) is None:
        raise NotFound(
            "the job's last run failed before it wrote its queue",
            where=f"job {job.job_key}",
            why=job.reason,
            do=f"mend that and go on with `tallybatch resume {job.job_key[:12]}`; no decision is lost",
        )
    for key in (keys.review_queue(job.attempt), keys.review_sample):
        if objects.head(key) is not None:
            with objects.open(key) as stream:
                yield from filter(None, _lines(stream))


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    return newline_split(iter(lambda: stream.read(CHUNK_BYTES), b""))


class _Wanted(NamedTuple):
    why: str
    stratum: str = ""


class _Kept(NamedTuple):
    """An outcome of a record, and the object that it is in."""

    outcome: Outcome
    key: str


@dataclass(frozen=True, slots=True)
class ReviewQueue:
    context: JobContext
    closure: Closure
    objects: Objects
    formats: Formats

    def write(self, ledger: Ledger) -> None:
        """The records in review after this attempt. A queue that is there stays.

        While the job ran, it let go of them, lest two jobs wait for each other; now that it rests, it holds them, and
        whoever wants them waits for people."""
        if not self.closure.review_key:
            return
        key, job_key = self.context.keys.review_queue(self.closure.attempt), self.context.keys.job_key
        self._put(key, self._in_review())
        with self.objects.open(key) as stream:
            lines = filter(None, _lines(stream))
            claims = (RecordClaim(decode_entry(line).record_key, job_key, self.closure.attempt) for line in lines)
            while batch := list(islice(claims, _CLAIM_BATCH)):
                ledger.take_over_records(batch, from_job=NOBODY)

    def write_sample(self) -> int:
        """The spec's sample of the accepted records, drawn once in a job's life of those that people have not decided
        about by then; returns how many of it nobody has decided about since."""
        size = self.context.spec.quality.review_sample
        if not size:
            return 0
        keys = self.context.keys
        decided = standing_decisions(self.closure.submissions, keys, self.objects)
        self._put(keys.review_sample, self._sampled(size, decided))
        lines = self.objects.get(keys.review_sample).split(b"\n")
        return sum(decode_entry(line).record_id not in decided for line in lines if line)

    def _put(self, key: str, items: Iterator[ReviewItem]) -> None:
        if self.objects.head(key) is None:
            with tempfile.TemporaryFile() as file:
                for item in items:
                    file.write(_encode(item) + b"\n")
                with suppress(Conflict):  # of two that seal at once the first one's stays
                    self.objects.put_once(
                        key,
                        cast("BinaryIO", file),
                        content_type="application/x-ndjson",
                        retention=self.context.retention("results"),
                    )

    def _in_review(self) -> Iterator[ReviewItem]:
        sources = self._sources()
        with self.objects.open(self.closure.review_key) as stream:
            records = map(_decode_record, read_zstd_lines(stream))
            for shard_id, group in groupby(records, key=lambda record: record.shard_id):
                wanted = {record.record_id: _Wanted(record.why) for record in group}
                yield from self._items(shard_id, wanted, sources[shard_id])

    def _sampled(self, size: int, decided: Collection[str]) -> Iterator[ReviewItem]:
        manifest = self.context.manifest
        sampler = Sampler(size, salt=manifest.job_key)
        sources = self._sources()
        for shard in manifest.shards:
            for kept in self._standing(shard.shard_id, sources[shard.shard_id]).values():
                outcome, trouble = kept
                if outcome.record_id in decided:
                    continue
                stratum = stratum_of(manifest.tenant, manifest.data_class, bytes(outcome.output), trouble)
                sampler.offer(outcome.record_id, shard.shard_id, stratum)
        drawn = by_shard(sampler.draw())
        for shard in manifest.shards:
            if chosen := drawn.get(shard.shard_id):
                wanted = {one.record_id: _Wanted(SAMPLED, one.stratum) for one in chosen.values()}
                yield from self._items(shard.shard_id, wanted, sources[shard.shard_id])

    def _standing(self, shard_id: str, keys: Iterable[str]) -> dict[str, tuple[Outcome, str]]:
        """The accepted rows of a shard, each with the last failure before it or what was odd about it."""
        failed: dict[str, str] = {}
        standing: dict[str, tuple[Outcome, str]] = {}
        for key in keys:
            for outcome in read_outcomes(self.objects, key):
                if outcome.shard_id != shard_id:
                    continue
                record_id = outcome.record_id
                if outcome.outcome in ACCEPTED:
                    odd = outcome.notes[0] if outcome.notes else ""
                    standing.setdefault(record_id, (outcome, failed.get(record_id) or odd))
                elif outcome.outcome in OVERRULING:
                    standing.pop(record_id, None)
                else:
                    failed[record_id] = outcome.outcome.value
        return standing

    def _sources(self) -> dict[str, list[str]]:
        """The outcome objects in which each shard's records appear, in the order of attempts."""
        items = map(PublishItem.model_validate, _decode_items(self.objects.get(self.closure.publish_key)))
        return {item.shard_id: item.outcomes for item in items}

    def _items(self, shard_id: str, wanted: Mapping[str, _Wanted], keys: Iterable[str]) -> Iterator[ReviewItem]:
        """In the order of the shard."""
        told: dict[str, list[_Kept]] = defaultdict(list)
        for key in keys:
            for outcome in read_outcomes(self.objects, key):
                if outcome.shard_id == shard_id and outcome.record_id in wanted:
                    told[outcome.record_id].append(_Kept(outcome, key))
        reader = _Answers(self.context, self.objects, self.formats)
        all_lines = _conflicting(told, reader)
        (shard,) = (one for one in self.context.manifest.shards if one.shard_id == shard_id)
        for record in shard_records(self.objects, self.context, shard.sha256):
            if (asked := wanted.get(record.record_id)) is not None:
                yield self._item(record, shard_id, asked, told[record.record_id], all_lines, reader)

    def _item(
        self,
        record: ShardRecord,
        shard_id: str,
        asked: _Wanted,
        told: list[_Kept],
        all_lines: Mapping[tuple[str, str], list[RawRef]],
        reader: _Answers,
    ) -> ReviewItem:
        manifest = self.context.manifest
        sampled = asked.why == SAMPLED
        standing = [kept for kept in told if kept.outcome.outcome in ACCEPTED]
        shown = standing[-1:] if sampled else told
        last = shown[-1].outcome if shown else None
        trouble = "" if sampled else asked.why
        return ReviewItem(
            record_id=record.record_id,
            record_key=last.record_key
            if sampled and last
            else self.context.identity.record_key(record.record_id, record.source_version),
            business_key=record.business_key,
            why=asked.why,
            reason=(last.reason or last.code) if last and not sampled else "",
            data_class=manifest.data_class,
            stratum=asked.stratum or stratum_of(manifest.tenant, manifest.data_class, b"", trouble),
            shard_id=shard_id,
            tries=last.tries if last else 0,
            used=last.used if last else NOTHING_USED,
            output_cap=last.output_cap if last else 0,
            input=record.input,
            candidates=tuple(one for kept in shown for one in reader.candidates(kept.outcome, record.input, all_lines)),
            accepted_in=_accepted_in(standing[-1], self.objects) if sampled and standing else "",
        )


def _accepted_in(kept: _Kept, objects: Objects) -> str:
    return kept.outcome.reused_from or objects.uri(kept.key)


def _conflicting(told: Mapping[str, list[_Kept]], reader: _Answers) -> dict[tuple[str, str], list[RawRef]]:
    """Every line of each record that was answered in more than one way, by (folder of raw objects, record_id)."""
    folders: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for record_id, rows in told.items():
        for outcome, _ in rows:
            if outcome.outcome is OutcomeClass.CONFLICT and outcome.raw is not None:
                folders[_folder(outcome.raw), outcome.provider, outcome.model].add(record_id)
    found: dict[tuple[str, str], list[RawRef]] = defaultdict(list)
    for (folder, provider, model), ids in folders.items():
        for record_id, raw in reader.lines_of(folder, ids, provider, model):
            found[folder, record_id].append(raw)
    return found


def _folder(raw: RawRef) -> str:
    return raw.uri.rpartition("/")[0] + "/"


class _Answers:
    """Reads what came back, from the raw lines that outcomes point at."""

    def __init__(self, context: JobContext, objects: Objects, formats: Formats) -> None:
        self.objects = objects
        self._context, self._formats = context, formats
        self._read_by: dict[tuple[str, str], ProviderFormat] = {}
        self._check = AnswerCheck.of(context.spec)

    def candidates(
        self, outcome: Outcome, given: msgspec.Raw, all_lines: Mapping[tuple[str, str], list[RawRef]]
    ) -> Iterator[Candidate]:
        if outcome.raw is None or outcome.provider == PEOPLE:
            yield self._candidate(outcome, given, None, outcome.raw)
            return
        lines = all_lines.get((_folder(outcome.raw), outcome.record_id), [outcome.raw])
        seen: set[str | None] = set()
        for raw in lines:
            line = self.objects.get_range(self._key(raw.uri), raw.offset, raw.length)
            result = self._parse(line, outcome.provider, outcome.model)
            answer = result.answer if result is not None else None
            if len(lines) > 1 and answer in seen:
                continue
            seen.add(answer)
            yield self._candidate(outcome, given, result, raw)

    def _candidate(
        self, outcome: Outcome, given: msgspec.Raw, result: RecordResult | None, raw: RawRef | None
    ) -> Candidate:
        answer = result.answer if result is not None else None
        output, problem = outcome.output, outcome.reason
        if answer is not None and outcome.outcome not in ACCEPTED:
            verdict = self._check.check(answer, given)
            output, problem = msgspec.Raw(verdict.output) if verdict.output else NO_OUTPUT, verdict.reason
        return Candidate(
            attempt=outcome.attempt,
            outcome=outcome.outcome,
            answer=answer,
            output=output,
            problem=problem,
            code=outcome.code,
            provider=outcome.provider,
            model_version=result.model_version if result is not None else outcome.model_version,
            finish_reason=result.finish_reason if result is not None else outcome.finish_reason,
            provider_job_id=outcome.provider_job_id,
            provider_request_id=result.request_id if result is not None else outcome.provider_request_id,
            raw=raw,
        )

    def lines_of(self, folder: str, record_ids: set[str], provider: str, model: str) -> Iterator[tuple[str, RawRef]]:
        """Every line under a folder of raw objects that answers one of these records."""
        for info in self.objects.list(self._key(folder)):
            if info.key.rpartition("/")[2].startswith(META):
                continue
            offset = 0
            with self.objects.open(info.key) as stream:
                for line in _lines(stream):
                    result = self._parse(line, provider, model)
                    if result is not None and result.record_id in record_ids:
                        raw = RawRef(self.objects.uri(info.key), offset, len(line), sha256_hex(line))
                        yield result.record_id, raw
                    offset += len(line) + 1

    def _parse(self, line: bytes, provider: str, model: str) -> RecordResult | None:
        """`model` as in `Outcome`."""
        if (provider, model) not in self._read_by:
            self._read_by[provider, model] = self._formats(self._context.for_target(provider, model).spec)
        try:
            return self._read_by[provider, model].parse(line)
        except ValueError:
            return None

    def _key(self, uri: str) -> str:
        return uri.removeprefix(self.objects.uri(""))

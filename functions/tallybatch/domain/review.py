"""The human queue: what people are shown of a record, what they may decide, and the sample that they look at."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.outcomes import NO_OUTPUT, NOTHING_USED, OutcomeClass, RawRef, Used

SAMPLED = "sampled"
"""Why an accepted record is in the queue; all other words are those of `retries.ReviewClass`."""
PEOPLE = "review"
"""Stands where a provider's name would: people gave the answer, or decided that there is none."""
CONFIDENCE_BUCKETS = 5
MAX_DECISIONS_BYTES = 64 << 20
_MAX_PROBLEMS = 100


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer, or failure, that came back for a record. `answer` is the model's text; `output` is what it would be
    published as, set only if it passes the checks; `problem` says why it does not."""

    attempt: int
    outcome: OutcomeClass
    answer: str | None = None
    output: msgspec.Raw = NO_OUTPUT
    problem: str = ""
    code: str = ""
    provider: str = ""
    model_version: str = ""
    finish_reason: str = ""
    provider_job_id: str = ""
    provider_request_id: str = ""
    raw: RawRef | None = None


class ReviewItem(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the queue. `why` is a `ReviewClass` or `SAMPLED`; `input` holds the fields as they were sent.
    `decision` is for whoever fills the line in."""

    record_id: str
    record_key: str
    business_key: str
    why: str
    reason: str
    data_class: str
    stratum: str
    shard_id: str
    tries: int
    used: Used
    output_cap: int
    input: msgspec.Raw
    candidates: tuple[Candidate, ...]
    accepted_in: str = ""
    """URI of the outcome object that holds a sampled record's accepted answer."""
    decision: str | None = None


class QueueEntry(msgspec.Struct, frozen=True):
    """What a decision needs of its line in the queue; decoding skips the rest."""

    record_id: str
    record_key: str
    business_key: str
    why: str
    shard_id: str
    tries: int
    input: msgspec.Raw
    used: Used = NOTHING_USED
    output_cap: int = 0
    reason: str = ""
    accepted_in: str = ""


decode_entry = msgspec.json.Decoder(QueueEntry).decode


class Kind(StrEnum):
    ACCEPT = "accept"
    REJECT = "reject"
    REQUEUE = "requeue"


class ReviewDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision as it is stored under the job. `output` is the accepted answer as JSON; not set for a sampled record
    that is accepted as it stands."""

    record_id: str
    business_key: str
    decision: Kind
    shard_id: str
    tries: int
    accepted_in: str = ""
    """Of a sampled record: the outcome object with the answer that the decision is about."""
    output: msgspec.Raw = NO_OUTPUT
    reason: str = ""
    used: Used = NOTHING_USED
    output_cap: int = 0
    record_key: str = ""
    """Of the slot that the decision is about: of a sampled record, the one that holds its answer."""


decode_decision = msgspec.json.Decoder(ReviewDecision).decode


class Decided(msgspec.Struct, frozen=True):
    """A decision that stands already, and whose it is. `at` in Unix seconds."""

    record_id: str
    business_key: str
    decision: str
    by: str
    at: float
    attempt: int


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Who decided what and when: one object per file of decisions. `file_sha256` is of the file as given, `sha256`
    of the decisions that were taken from it. Times in Unix seconds."""

    by: str
    at: float
    attempt: int
    file_sha256: str
    sha256: str
    decisions: dict[str, int]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line as people give it: a record by either name and a decision; an exported line with these filled in is one,
    too."""

    record_id: str = ""
    business_key: str = ""
    decision: Kind | None = None
    output: msgspec.Raw = NO_OUTPUT
    reason: str = ""
    record_key: Any = None
    why: Any = None
    data_class: Any = None
    stratum: Any = None
    shard_id: Any = None
    tries: Any = None
    used: Any = None
    output_cap: Any = None
    input: Any = None
    candidates: Any = None
    accepted_in: Any = None


_decode_line = msgspec.json.Decoder(_Line).decode

Check = Callable[[str, msgspec.Raw], tuple[bytes, str]]
"""Takes an answer's text and the record's input; returns the output as JSON and "" or the reason it is refused."""


class Parsed(NamedTuple):
    """`decisions` in the order of the file; `already` were decided before."""

    decisions: list[ReviewDecision]
    already: list[Decided]
    undecided: int


def parse_decisions(
    data: bytes,
    queue: Mapping[str, QueueEntry],
    decided: Mapping[str, Decided],
    check: Check,
    *,
    plain_text: bool,
    where: str,
) -> Parsed:
    """Read a file of decisions against the queue (both by record_id). Lines without a decision are passed over. One bad
    line refuses the whole file: raises `BadInput` with every problem. `plain_text`: outputs are strings."""
    by_key: dict[str, list[str]] = {}
    everybody: list[QueueEntry | Decided] = [*queue.values(), *decided.values()]
    for known in everybody:
        ids = by_key.setdefault(known.business_key, [])
        if known.record_id not in ids:
            ids.append(known.record_id)
    found = Parsed([], [], 0)
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    undecided = 0
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            line = _decode_line(raw)
            if line.decision is None:
                undecided += 1
                continue
            record_id = _record_id(line, by_key)
            if record_id in seen:
                raise ValueError(f"the record is decided on line {seen[record_id]} already")
            seen[record_id] = number
            entry = queue.get(record_id)
            if entry is None and record_id in decided:
                found.already.append(decided[record_id])
            elif entry is None:
                raise ValueError("the record is not in the job's review queue")
            else:
                found.decisions.append(_decision(line, entry, check, plain_text=plain_text))
        except (ValueError, msgspec.DecodeError) as error:
            problems.append(Problem(str(error), line=number, code="decision"))
    if problems:
        raise BadInput(
            f"{len(problems)} decisions cannot be taken",
            problems[:_MAX_PROBLEMS],
            where=where,
            do="mend these lines and give the file again; nothing was decided",
        )
    return found._replace(undecided=undecided)


def _record_id(line: _Line, by_key: Mapping[str, list[str]]) -> str:
    if line.record_id:
        return line.record_id
    ids = by_key.get(line.business_key, []) if line.business_key else []
    if not line.business_key:
        raise ValueError("a decision names its record by record_id or business_key")
    if len(ids) != 1:
        raise ValueError("no record of that business_key is in the job's review queue" if not ids else "give record_id")
    return ids[0]


def _decision(line: _Line, entry: QueueEntry, check: Check, *, plain_text: bool) -> ReviewDecision:
    """Raises `ValueError`; its words never quote the output."""
    if line.business_key and line.business_key != entry.business_key:
        raise ValueError("record_id and business_key name two records")
    sampled = entry.why == SAMPLED
    given = bytes(line.output) != bytes(NO_OUTPUT)
    output = NO_OUTPUT
    kind = line.decision
    assert kind is not None  # noqa: S101 - the caller has looked
    if kind is not Kind.ACCEPT and given:
        raise ValueError(f"only accept takes an output, not {kind}")
    if kind is Kind.REJECT and not line.reason.strip():
        raise ValueError("reject needs a reason")
    if kind is Kind.ACCEPT and sampled and given:
        raise ValueError(
            "the record has its one accepted answer: accept it as it is, reject it, or requeue it to ask again"
        )
    if kind is Kind.ACCEPT and not sampled:
        if not given:
            raise ValueError("accept needs the output that is to be published")
        output = msgspec.Raw(_checked(line.output, entry.input, check, plain_text=plain_text))
    # an exported line still carries the queue's reason
    reason = "" if line.reason == entry.reason and kind is not Kind.REJECT else line.reason
    return ReviewDecision(
        record_id=entry.record_id,
        business_key=entry.business_key,
        decision=kind,
        shard_id=entry.shard_id,
        tries=entry.tries,
        accepted_in=entry.accepted_in,
        output=output,
        reason=reason,
        used=entry.used,
        output_cap=entry.output_cap,
        record_key=entry.record_key,
    )


def _checked(output: msgspec.Raw, record_input: msgspec.Raw, check: Check, *, plain_text: bool) -> bytes:
    text = bytes(output).decode()
    if plain_text:
        value = msgspec.json.decode(output)
        if type(value) is not str:
            raise ValueError("the spec has no schema, so an output is a string")
        text = value
    encoded, reason = check(text, record_input)
    if reason:
        raise ValueError(reason)
    return encoded


class Sampled(NamedTuple):
    record_id: str
    shard_id: str
    stratum: str


class Sampler:
    """A stratified sample of a stream of accepted records: the same records give the same sample, in any order. Keeps
    at most `size` records per stratum."""

    def __init__(self, size: int, *, salt: str) -> None:
        self._size = size
        self._salt = salt.encode()
        self._counts: dict[str, int] = {}
        self._kept: dict[str, list[tuple[int, str, str]]] = {}

    def offer(self, record_id: str, shard_id: str, stratum: str) -> None:
        rank = -int.from_bytes(hashlib.sha256(self._salt + record_id.encode()).digest()[:8])
        self._counts[stratum] = self._counts.get(stratum, 0) + 1
        kept = self._kept.setdefault(stratum, [])
        if len(kept) < self._size:
            heapq.heappush(kept, (rank, record_id, shard_id))
        elif kept and rank > kept[0][0]:
            heapq.heapreplace(kept, (rank, record_id, shard_id))

    def draw(self) -> list[Sampled]:
        """At least one of each stratum, the rarest first, and the rest in proportion."""
        return [
            Sampled(record_id, shard_id, stratum)
            for stratum, count in sorted(self._shares().items())
            for _, record_id, shard_id in sorted(self._kept[stratum], reverse=True)[:count]
        ]

    def _shares(self) -> dict[str, int]:
        total = sum(self._counts.values())
        size = min(self._size, total)
        rarest = sorted(self._counts, key=lambda stratum: (self._counts[stratum], stratum))
        shares = dict.fromkeys(rarest[:size], 1)
        left = size - len(shares)
        if left <= 0:
            return shares
        rest = {stratum: self._counts[stratum] - 1 for stratum in shares}
        pool = sum(rest.values())
        exact = {stratum: left * count / pool for stratum, count in rest.items()} if pool else {}
        for stratum, share in exact.items():
            shares[stratum] += int(share)
        by_remainder = sorted(exact, key=lambda stratum: (int(exact[stratum]) - exact[stratum], stratum))
        for stratum in by_remainder[: size - sum(shares.values())]:
            shares[stratum] += 1
        return shares


def stratum_of(tenant: str, data_class: str, output: bytes, trouble: str) -> str:
    """Tenant, data class, the fifth of the confidence that the output states, and what went wrong before it came."""
    return f"{tenant} {data_class} confidence={_confidence(output)} after={trouble or 'nothing'}"


class _Confident(msgspec.Struct):
    confidence: float | None = None


_decode_confident = msgspec.json.Decoder(_Confident).decode


def _confidence(output: bytes) -> str:
    if b'"confidence"' not in output:
        return "none"
    try:
        value = _decode_confident(output).confidence
    except msgspec.DecodeError:
        return "none"
    if value is None or not 0 <= value <= 1:
        return "none"
    bucket = min(int(value * CONFIDENCE_BUCKETS), CONFIDENCE_BUCKETS - 1)
    return f"{bucket / CONFIDENCE_BUCKETS:.1f}"


def by_shard(sample: Iterable[Sampled]) -> dict[str, dict[str, Sampled]]:
    grouped: dict[str, dict[str, Sampled]] = {}
    for one in sample:
        grouped.setdefault(one.shard_id, {})[one.record_id] = one
    return grouped

"""What happened to one record in one attempt, and the classes that decide what follows.

The structs of the record loop are untracked by the garbage collector (`gc=False`): they hold no cycles, and a shard has
tens of thousands of them alive at once.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec


class OutcomeClass(StrEnum):
    SUCCEEDED = "succeeded"
    REUSED = "reused"
    """Accepted earlier under the same record_key: counted, and paid for nobody twice."""
    PERMANENT = "permanent"
    REFUSED = "refused"
    """The model or a filter declined to answer."""
    RETRYABLE = "retryable"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    TRUNCATED = "truncated"
    UNQUALIFIED = "unqualified"
    """An answer that fails syntax, schema, a rule or a gate."""
    MISSING = "missing"
    """Expected, and in no channel of the provider's results."""
    CONFLICT = "conflict"
    """Answered more than once, with different content."""
    REJECTED = "rejected"
    """People decided that there is no answer to accept."""
    REQUEUED = "requeued"
    """People decided that the record is asked once more."""
    CONFIRMED = "confirmed"
    """People looked at an accepted answer and let it stand: changes nothing."""
    WAITING = "waiting"
    """Another job has this record in flight, and its outcome decides; or it is kept until others can join it (code
    `too_few`) or until it is asked alone (`rescue`). Uses up no attempt."""
    TOO_FEW = "too_few"
    """Not sent: fewer records than the provider takes in one job, and no others to join them."""
    UNSETTLED = "unsettled"
    """Handed to a provider, and its shard was lost before it was reconciled: the same submission goes on."""


SUCCEEDED = OutcomeClass.SUCCEEDED
"""For the record loop, where looking a member up in its class would be done several times a record."""
ACCEPTED = frozenset({OutcomeClass.SUCCEEDED, OutcomeClass.REUSED})
OVERRULING = frozenset({OutcomeClass.REJECTED, OutcomeClass.REQUEUED})
"""Decisions of people that count whatever was concluded before them."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens as billed. `input` includes `cached_input` and `cache_write`; `output` includes `reasoning`."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_write: int = 0


_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")


def plain_word(code: str) -> str:
    """A provider's code as ledger rows and reports may hold it: a word, or none of what was said."""
    return code if _WORD.fullmatch(code) else "(no word)" if code else ""


class Used(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a record without an accepted answer has used up over its attempts: tokens as billed (input and output),
    nano-dollars, and, at the target that is asked now, answers with a code that nobody knows."""

    tokens: int = 0
    nano_usd: int = 0
    unknown_codes: int = 0
    targets: int = 0
    """Providers and models given up before the one that is asked now: its place in `Spec.targets`."""
    earlier_tries: int = 0
    """At those."""
    refusals: int = 0
    """Submissions that the account at the present target was refused: they used up no try."""


NOTHING_USED = Used()


class RawRef(msgspec.Struct, frozen=True, gc=False):
    """Where the received bytes of a line are: object, byte offset, byte length without the newline, SHA-256."""

    uri: str
    offset: int
    length: int
    sha256: str


class RecordResult(msgspec.Struct, frozen=True, gc=False):
    """One line of a provider's results, read into one shape for all providers.

    `outcome` is SUCCEEDED, TRUNCATED, REFUSED, PERMANENT, RETRYABLE, EXPIRED or CANCELLED. `answer` is the model's text
    (for embeddings: the JSON of the vectors); it is set for TRUNCATED too when there is any. `code` is the provider's
    own error code or finish reason, kept as it came.
    """

    record_id: str
    outcome: OutcomeClass
    answer: str | None = None
    code: str = ""
    message: str = ""
    finish_reason: str = ""
    model_version: str = ""
    request_id: str = ""
    usage: Usage = Usage()
    unknown_code: bool = False
    """`code` is in no table of the provider's; `outcome` is RETRYABLE."""


NO_OUTPUT = msgspec.Raw(b"null")
"""Of a record without an accepted answer; left out of its line."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of outcomes.jsonl.zst: the audit row of a (record, attempt).

    `shard_id` is the manifest's shard (the parent, for a retry). `tries` counts how often this record was handed to a
    provider, this time included. `output` is the accepted answer: parsed JSON where the spec has a schema, else text.
    """

    record_id: str
    record_key: str
    business_key: str
    shard_id: str
    attempt: int
    tries: int
    outcome: OutcomeClass
    code: str = ""
    reason: str = ""
    output: msgspec.Raw = NO_OUTPUT
    notes: tuple[str, ...] = ()
    provider: str = ""
    provider_job_id: str = ""
    provider_request_id: str = ""
    model_version: str = ""
    finish_reason: str = ""
    usage: Usage = Usage()
    raw: RawRef | None = None
    used: Used = NOTHING_USED
    """Over all attempts, this one included; not told of an accepted answer."""
    output_cap: int = 0
    """Tokens that the answer might have at most, where a retry raised it above the spec's."""
    cost_nano_usd: int | None = None
    """Of all that the provider did for this record in this attempt; null, and left out, where nobody can tell."""
    price: str = ""
    """`Price.id` of the rates that were applied."""
    model: str = ""
    """Which model was asked, as resolved; "" is the spec's own, a name one of its fallback."""
    reused_from: str = ""
    """URI of the outcome object that holds the reused answer."""

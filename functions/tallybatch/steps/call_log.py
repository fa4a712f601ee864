"""What is known of the single calls of a submission: an intent before each, and how it ended, each its own object.

`<record_id>/<n>.intent` is written by whoever sends call n, once; then `.reply` (the line that counts), `.unknown`
(sent, and no answer that counts; a line if there was one) or `.refused` (provably not carried out). An intent without
an end is a call that is under way, or whose answer was lost together with its function.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from tallybatch.domain.errors import Conflict
from tallybatch.ports import Objects

MAX_CALLS = 2
"""Calls that may have been paid for, of one record in one attempt: the repetition of one lost answer."""
_MARGIN_S = 30


class End(Enum):
    REPLY = "reply"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class Intent(msgspec.Struct, frozen=True):
    """`owner` is a nonce: two that write the same call differ, and the second fails."""

    owner: str
    at: float


@dataclass(slots=True)
class _Call:
    end: End | None = None
    under_way_until: float = 0
    """Unix seconds; 0 if it was not looked up yet."""


@dataclass
class CallLog:
    """`window_s`: how long a call may be under way before its answer counts as lost."""

    objects: Objects
    prefix: str
    window_s: float
    retention: str = ""
    _calls: dict[str, dict[int, _Call]] = field(default_factory=lambda: defaultdict(dict))

    def load(self) -> CallLog:
        for info in self.objects.list(self.prefix):
            record_id, _, name = info.key.removeprefix(self.prefix).partition("/")
            number, _, kind = name.partition(".")
            call = self._calls[record_id].setdefault(int(number), _Call())
            if kind != "intent":
                call.end = End(kind)
        return self

    def next_call(self, record_id: str, now: float) -> int:
        """The number of the call that may be sent now, 0 if the record has its answer or has had its calls."""
        calls = self._calls[record_id]
        if self._answer_of(record_id) or self.under_way_until(record_id, now) or self._paid(record_id) >= MAX_CALLS:
            return 0
        return max(calls, default=0) + 1

    def under_way_until(self, record_id: str, now: float) -> float:
        """Unix seconds until which another function may still bring the answer of its call; 0 if none does."""
        for number, call in self._calls[record_id].items():
            if call.end is None:
                if not call.under_way_until:
                    intent = msgspec.json.decode(self.objects.get(self._key(record_id, number, "intent")), type=Intent)
                    call.under_way_until = intent.at + self.window_s + _MARGIN_S
                if now < call.under_way_until:
                    return call.under_way_until
        return 0

    def refusals(self, record_id: str) -> int:
        return sum(call.end is End.REFUSED for call in self._calls[record_id].values())

    def begin(self, record_id: str, number: int, now: float) -> bool:
        """Write the intent. False if somebody else has sent this call."""
        intent = Intent(uuid.uuid4().hex, now)
        call = self._calls[record_id].setdefault(number, _Call())
        try:
            self._put(record_id, number, "intent", msgspec.json.encode(intent))
        except Conflict:
            return False
        call.under_way_until = now  # ours: once it has ended without an end, its answer is lost
        return True

    def end(self, record_id: str, number: int, end: End, body: bytes = b"") -> None:
        """Write how a call ended, once."""
        self._put(record_id, number, end.value, body)
        self._calls[record_id][number].end = end

    def line(self, record_id: str) -> bytes:
        """The line that counts: of the first call that was answered, else of the last that failed; b"" for none."""
        number = self._answer_of(record_id)
        if number:
            return self.objects.get(self._key(record_id, number, End.REPLY.value))
        failed = [n for n, call in self._calls[record_id].items() if call.end is End.UNKNOWN]
        return self.objects.get(self._key(record_id, max(failed), End.UNKNOWN.value)) if failed else b""

    def lost(self, record_id: str) -> int:
        """Calls that may have been paid for besides the one whose answer counts."""
        return self._paid(record_id) - bool(self._answer_of(record_id))

    def _answer_of(self, record_id: str) -> int:
        answered = [number for number, call in self._calls[record_id].items() if call.end is End.REPLY]
        return min(answered, default=0)

    def _paid(self, record_id: str) -> int:
        return sum(call.end is not End.REFUSED for call in self._calls[record_id].values())

    def _key(self, record_id: str, number: int, kind: str) -> str:
        return f"{self.prefix}{record_id}/{number}.{kind}"

    def _put(self, record_id: str, number: int, kind: str, body: bytes) -> None:
        key = self._key(record_id, number, kind)
        self.objects.put_once(key, body, content_type="application/json", retention=self.retention)

"""Records: a normalised line of a shard, and the reader that makes one from a line of input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tallybatch.domain.identity import RecordIdentity, sha256_hex
from tallybatch.domain.input_lines import LineRefused, decode_object, pointer_reader, read_key, resolve
from tallybatch.domain.outcomes import NOTHING_USED, Used


class ShardRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of a shard. `input` holds the fields that may leave the account (for a native file: the request line
    without its id). The fields from `tries` on are set on retry shards only."""

    record_id: str
    business_key: str
    source_version: str
    input: msgspec.Raw
    tries: int = 0
    """How often this record was handed to a provider before."""
    attempt: int = 1
    parent_job_key: str = ""
    parent_shard_id: str = ""
    retry_reason: str = ""
    used: Used = NOTHING_USED
    """By the attempts before."""
    output_cap: int = 0
    """Raised cap of the answer's tokens, 0: the spec's."""
    feedback: str = ""
    """Why the last answer was not accepted; told to the model."""


encode_record = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="sorted").encode
decode_record = msgspec.json.Decoder(ShardRecord).decode


class Prepared(NamedTuple):
    """A record that passed every check: its shard line without newline, and the bytes its request line will have."""

    business_key: str
    line: bytes
    request_bytes: int


class RecordReader:
    """Reads input lines of format `records` under one spec and tenant."""

    def __init__(
        self,
        *,
        key: str,
        fields: Sequence[str],
        source_version: str,
        identity: RecordIdentity,
        measure: Callable[[dict[str, Any]], int],
    ) -> None:
        """`measure` gives the bytes of the request line for an input, newline included; it raises `LineRefused` when
        the template cannot be filled."""
        self._key_steps, self._key = pointer_reader(key), key
        self._fields = tuple(fields)
        self._version_steps, self._version = pointer_reader(source_version), source_version
        self._record_id = identity.record_id
        self._measure = measure

    def read(self, line: bytes) -> Prepared:
        """Raises `LineRefused`."""
        source = decode_object(line)
        try:
            business_key = source[self._key]
        except KeyError:
            business_key = resolve(source, self._key_steps, self._key)
        business_key = read_key(business_key)
        try:
            used = {name: source[name] for name in self._fields}
        except KeyError as missing:
            raise LineRefused("missing_field", f"field {missing.args[0]!r} is missing") from None
        encoded = encode_sorted(used)
        version = self._source_version(source) if self._version else sha256_hex(encoded)
        record_id = self._record_id(business_key, version)
        return Prepared(business_key, _shard_line(record_id, business_key, version, encoded), self._measure(used))

    def _source_version(self, source: dict[str, Any]) -> str:
        value = resolve(source, self._version_steps, self._version)
        if type(value) not in (str, int, float) or value == "":
            raise LineRefused("source_version", f"field {self._version!r} must be a non-empty string or a number")
        return value if type(value) is str else encode_sorted(value).decode()


class NativeReader:
    """Reads lines of a provider's own batch format: the line's own id is the business key."""

    def __init__(
        self,
        *,
        id_field: str,
        identity: RecordIdentity,
        problem: Callable[[dict[str, Any]], str],
        measure: Callable[[dict[str, Any]], int],
    ) -> None:
        """`problem` names what is wrong with a native line, "" if nothing is."""
        self._id_field = id_field
        self._record_id = identity.record_id
        self._problem = problem
        self._measure = measure

    def read(self, line: bytes) -> Prepared:
        """Raises `LineRefused`."""
        source = decode_object(line)
        if reason := self._problem(source):
            raise LineRefused("native_line", reason)
        business_key = read_key(source.pop(self._id_field))
        encoded = encode_sorted(source)
        version = sha256_hex(encoded)
        record_id = self._record_id(business_key, version)
        return Prepared(business_key, _shard_line(record_id, business_key, version, encoded), self._measure(source))


def _shard_line(record_id: str, business_key: str, version: str, encoded_input: bytes) -> bytes:
    """The encoding of a `ShardRecord`, put together from parts that are encoded already."""
    return b'{"record_id":"%b","business_key":%b,"source_version":%b,"input":%b}' % (
        record_id.encode(),
        encode_sorted(business_key),
        encode_sorted(version),
        encoded_input,
    )

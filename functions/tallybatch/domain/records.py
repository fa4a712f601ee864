"""Records: a normalised line of a shard, and the reader that makes one from a line of input."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain, starmap
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from tallybatch.domain.identity import RecordIdentity
from tallybatch.domain.input_lines import LineRefused, decode_objects, pointer_reader, read_keys, resolve
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
    """Records that passed every check: of each its business key, its shard line without newline, and the bytes that its
    request line will have."""

    business_keys: list[str]
    lines: list[bytes]
    request_bytes: list[int]


Measure = Callable[[dict[str, Any]], int]
"""Gives the bytes of the request line for an input, newline included; raises `LineRefused` when the template cannot be
filled."""


class RecordReader:
    """Reads input lines of format `records` under one spec and tenant."""

    def __init__(
        self,
        *,
        key: str,
        fields: Sequence[str],
        source_version: str,
        identity: RecordIdentity,
        measure: Measure,
        around: int | None = None,
    ) -> None:
        """`around`, if given: the bytes of a request line beyond the canonical JSON of its fields, where that is all
        that varies as long as each field is a string (see `rendering.Requests.around`)."""
        self._key_steps, self._key = pointer_reader(key), key
        self._fields = tuple(sorted(fields))
        self._pick = _picker(self._fields)
        self._used = _UsedFields(self._fields)
        self._around = around
        self._version_steps, self._version = pointer_reader(source_version), source_version
        self._identity = identity
        self._measure = measure

    def read(self, lines: Sequence[bytes]) -> Prepared:
        """Many lines at once, which costs each of them much less. Raises `LineRefused` if any of them is."""
        sources = decode_objects(lines)
        keys = read_keys(self._keys(sources))
        try:
            values = list(map(self._pick, sources))
        except KeyError as missing:
            raise LineRefused("missing_field", f"field {missing.args[0]!r} is missing") from None
        only_strings = set(map(type, chain.from_iterable(values))) == {str}
        if only_strings and _BACKSLASH not in b"".join(lines):
            inputs = self._used.as_written(lines)
        else:
            inputs = self._used.encode(values)
        versions = [encode_sorted(self._source_version(source)) for source in sources] if self._version else None
        around = self._around
        if only_strings and around is not None and not _splits_lines(b"".join(inputs)):
            sizes = [around + len(encoded) for encoded in inputs]
        else:
            sizes = [self._measure(dict(zip(self._fields, row, strict=True))) for row in values]
        return Prepared(keys, _shard_lines(self._identity, keys, versions, inputs), sizes)

    def _keys(self, sources: list[dict[str, Any]]) -> list[Any]:
        with suppress(KeyError):  # told by `resolve`
            if self._key_steps == [self._key]:
                return list(map(itemgetter(self._key), sources))
        return [resolve(source, self._key_steps, self._key) for source in sources]

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
        measure: Measure,
    ) -> None:
        """`problem` names what is wrong with a native line, "" if nothing is."""
        self._id_field = id_field
        self._identity = identity
        self._problem = problem
        self._measure = measure

    def read(self, lines: Sequence[bytes]) -> Prepared:
        """As `RecordReader.read`."""
        sources = decode_objects(lines)
        for reason in filter(None, map(self._problem, sources)):
            raise LineRefused("native_line", reason)
        keys = read_keys([source.pop(self._id_field) for source in sources])
        inputs = list(map(encode_sorted, sources))
        lines_kept = _shard_lines(self._identity, keys, None, inputs)
        return Prepared(keys, lines_kept, list(map(self._measure, sources)))


_SHARD_LINE = b'{"record_id":"%b","business_key":%b,"source_version":%b,"input":%b}'
"""The encoding of a `ShardRecord`, put together from parts that are encoded already."""
_BACKSLASH = ord("\\")
"""As a number: to look for a byte is many times quicker than for a string of one."""


def _shard_lines(
    identity: RecordIdentity, keys: list[str], versions: list[bytes] | None, inputs: list[bytes]
) -> list[bytes]:
    """`versions` as JSON; None: the content is the version."""
    if versions is None:
        versions = [b'"%b"' % hexlify(sha256(encoded).digest()) for encoded in inputs]
    encoded_keys = list(map(encode_sorted, keys))
    ids = identity.record_ids(encoded_keys, versions)
    return list(map(_SHARD_LINE.__mod__, zip(ids, encoded_keys, versions, inputs, strict=True)))


def _picker(fields: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Takes the fields' values from a source."""
    return itemgetter(*fields) if len(fields) > 1 else lambda source: tuple(source[name] for name in fields)


class _UsedFields:
    """The canonical JSON of a record's fields, which are in the order of their names."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        places = {f"f{number}": name for number, name in enumerate(fields)}
        values: list[tuple[str, Any]] = [(place, Any) for place in places]
        slices: list[tuple[str, Any]] = [(place, msgspec.Raw) for place in places]
        self._values = msgspec.defstruct("Values", values, rename=places, gc=False)
        self._slices = msgspec.json.Decoder(msgspec.defstruct("Slices", slices, rename=places, gc=False)).decode
        names = (encode_sorted(name).replace(b"%", b"%%") for name in fields)
        self._pattern = b"{" + b",".join(name + b":%b" for name in names) + b"}"

    def encode(self, values: list[tuple[Any, ...]]) -> list[bytes]:
        return list(map(encode_sorted, starmap(self._values, values)))

    def as_written(self, lines: Sequence[bytes]) -> list[bytes]:
        """For fields that are all strings, on lines without an escape: each stands there just as its canonical form
        is."""
        return list(map(self._pattern.__mod__, map(astuple, map(self._slices, lines))))


def _splits_lines(encoded: bytes) -> bool:
    """Whether a character is in it that request lines hold as an escape. To look for one byte first is much quicker."""
    return (0xE2 in encoded and (b"\xe2\x80\xa8" in encoded or b"\xe2\x80\xa9" in encoded)) or (
        0xC2 in encoded and b"\xc2\x85" in encoded
    )

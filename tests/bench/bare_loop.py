"""The yardstick of bench_record_loop: the same checks on the same files by a bare msgspec script, each in one function.

No retries, no other provider, no prices, no named refusals, nothing shared: what the language and its libraries cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import zstandard

from tallybatch.domain.lines import newline_split
from tallybatch.domain.shards import read_zstd_lines

_FRAME_BYTES = 1 << 19


def prepare(source: Path, packed: Path) -> int:
    """Check every line, give it its ids, and write the lines of the shards. Returns the bytes of all requests."""
    decode = msgspec.json.Decoder().decode
    encode = msgspec.json.Encoder(order="sorted").encode
    compress = zstandard.ZstdCompressor(level=1).compress
    whole, shard, sha256 = hashlib.sha256(), hashlib.sha256(), hashlib.sha256
    seen: set[str] = set()
    frame: list[bytes] = []
    held = request_bytes = 0

    def chunks() -> Iterator[bytes]:
        with source.open("rb") as file:
            while chunk := file.read(1 << 20):
                whole.update(chunk)
                yield chunk

    with packed.open("wb") as out:
        for line in newline_split(chunks()):
            row = decode(line)
            if type(row) is not dict:
                raise ValueError("not an object")
            if line.count(b'"') != 2 * (len(row) + sum(type(value) is str for value in row.values())):
                raise ValueError("a key stands there twice")
            key, title, plot = row["id"], row["title"], row["plot"]
            if type(key) is not str or not key.isprintable() or not 0 < len(key) <= 512 or key in seen:
                raise ValueError("a key of the wrong shape, or one that was there before")
            seen.add(key)
            used = encode({"plot": plot, "title": title})
            version = sha256(used).hexdigest()
            record_id = sha256(encode(["bench", key, version, "prompt", "model"])).hexdigest()[:32]
            request_bytes += len(used)
            kept = b'{"record_id":"%b","business_key":%b,"source_version":"%b","input":%b}' % (
                record_id.encode(),
                encode(key),
                version.encode(),
                used,
            )
            frame.append(kept)
            held += len(kept)
            if held >= _FRAME_BYTES:
                data = b"\n".join([*frame, b""])
                shard.update(data)
                out.write(compress(data))
                frame, held = [], 0
        data = b"\n".join([*frame, b""])
        shard.update(data)
        out.write(compress(data))
    return request_bytes


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Item(msgspec.Struct):
    type: str
    content: list[_Part] = []


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class _Body(msgspec.Struct):
    model: str = ""
    status: str = ""
    output: list[_Item] = []
    usage: _Usage | None = None


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: _Body


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response


class _Kept(msgspec.Struct):
    record_id: str
    business_key: str
    source_version: str


def reconcile(shard: Path, output: Path, packed: Path, schema: dict[str, Any]) -> int:
    """Join the lines of a result file with the records of its shard, check every answer, and write one row a record.
    Returns the answers that pass."""
    decode_kept, decode_line = msgspec.json.Decoder(_Kept).decode, msgspec.json.Decoder(_Line).decode
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    fits = jsonschema_rs.validator_for(schema).is_valid
    compress, sha256 = zstandard.ZstdCompressor(level=1).compress, hashlib.sha256
    with shard.open("rb") as file:
        records = [decode_kept(line) for line in read_zstd_lines(file)]
    back: dict[str, tuple[_Line, int, int, str] | None] = {record.record_id: None for record in records}
    offset = 0
    with output.open("rb") as file:
        for line in newline_split(iter(lambda: file.read(1 << 20), b"")):
            row = decode_line(line)
            if back[row.custom_id] is not None:
                raise ValueError("an id that came twice")
            back[row.custom_id] = (row, offset, len(line), sha256(line).hexdigest())
            offset += len(line) + 1
    rows: list[bytes] = []
    accepted = 0
    for record in records:
        found = back[record.record_id]
        told: dict[str, Any] = {"record_id": record.record_id, "business_key": record.business_key}
        told["record_key"] = sha256(encode(["bench", record.record_id, record.source_version])).hexdigest()
        if found is None:
            told["outcome"] = "missing"
        else:
            row, start, length, digest = found
            response = row.response
            told["raw"] = {"uri": str(output), "offset": start, "length": length, "sha256": digest}
            told["provider_request_id"] = response.request_id
            if response.status_code != 200:
                told["outcome"] = "retryable"
            else:
                body = response.body
                value = decode("".join(part.text for item in body.output for part in item.content))
                told["outcome"] = "succeeded" if fits(value) else "unqualified"
                accepted += told["outcome"] == "succeeded"
                usage = body.usage or _Usage()
                told |= {"output": value, "model_version": body.model, "finish_reason": body.status}
                told["usage"] = {"input": usage.input_tokens, "output": usage.output_tokens}
                told["cost_nano_usd"] = usage.input_tokens * 125 + usage.output_tokens * 1000
        rows.append(encode(told))
    frames = [compress(b"\n".join([*rows[start : start + 256], b""])) for start in range(0, len(rows), 256)]
    packed.write_bytes(b"".join(frames))
    return accepted

"""An outcome object holds the encoding of each row on a line of its own, and knows in which frame each went."""

from __future__ import annotations

import hashlib
import io

import msgspec
import pytest
import zstandard

from tallybatch.domain.outcomes import NO_OUTPUT, Outcome, OutcomeClass, RawRef, Usage
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.steps.outcome_files import FRAME_LINES, OutcomeFile


def outcome(number: int) -> Outcome:
    """Of every third kind: an answer, a failure with notes, a record of which nothing came."""
    kind = (OutcomeClass.SUCCEEDED, OutcomeClass.UNQUALIFIED, OutcomeClass.MISSING)[number % 3]
    answered = kind is OutcomeClass.SUCCEEDED
    return Outcome(
        record_id=f"{number:032x}",
        record_key=f"{number:064x}",
        business_key=f'film "{number}" é\u2028\\',
        shard_id="00000-abcdef12",
        attempt=1,
        tries=1,
        outcome=kind,
        output=msgspec.Raw(b'{"genre":"Noir"}') if answered else NO_OUTPUT,
        notes=() if answered else ("fenced_json", "model_drift"),
        usage=Usage(number, output=3) if answered else Usage(),
        raw=RawRef("s3://bucket/output.jsonl", number, 7, "ab") if number % 3 != 2 else None,
        cost_nano_usd=number if number % 2 else None,
    )


@pytest.mark.parametrize("count", [0, 1, FRAME_LINES - 1, FRAME_LINES, FRAME_LINES + 1, 2 * FRAME_LINES + 5])
def test_given_rows_when_written_then_each_is_a_line_in_the_frame_where_it_is_placed(count: int) -> None:
    outcomes = [outcome(number) for number in range(count)]
    file = OutcomeFile()
    file.extend(outcomes[: count // 3])
    file.extend(outcomes[count // 3 :])
    data = file.close()

    lines = list(map(msgspec.json.encode, outcomes))
    assert list(read_zstd_lines(io.BytesIO(data))) == lines
    assert len(file.placed) == count
    for line, (offset, length, sha256) in zip(lines, file.placed, strict=True):
        frame = zstandard.ZstdDecompressor().decompress(data[offset : offset + length])
        assert line in frame.split(b"\n")
        assert hashlib.sha256(frame).hexdigest() == sha256

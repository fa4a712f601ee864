"""Golden records: labels that people gave, and how a job's answers compare with them. Memory grows with the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.input_lines import LineRefused, decode_object, pointer_reader, read_key, resolve
from tallybatch.domain.spec_quality import Golden

MAX_GOLDEN_BYTES = 20_000_000
"""Of a golden file: it is held in memory."""
MAX_PROBLEMS = 100
MOST_LABELS = 25
"""Rows and columns of a confusion matrix; rarer labels are counted together."""
FEWEST = 3
LONGEST_ANSWER = 64
"""An answer that is nobody's label has a column of its own if it occurs so often and has no more characters: others may
be what a model wrote about somebody."""
OTHER = "(other)"
NO_ANSWER = "(no answer)"
"""Of a labelled record without an accepted answer, or whose answer lacks the field."""

_decode = msgspec.json.Decoder().decode


class _Label(msgspec.Struct):
    key: str
    label: str


_decode_label = msgspec.json.Decoder(_Label).decode


def read_golden(data: bytes, golden: Golden, *, key: str, where: str) -> dict[str, str]:
    """Label by business key, both as text. `key` is the spec's `input.key`. Raises `BadInput` with each bad line."""
    key_steps, label = pointer_reader(key), golden.label or golden.field
    label_steps = pointer_reader(label)
    labels: dict[str, str] = {}
    seen: dict[str, int] = {}
    problems: list[Problem] = []
    if len(data) > MAX_GOLDEN_BYTES:
        problems.append(Problem(f"the file has more than {MAX_GOLDEN_BYTES:,} bytes", code="golden_size"))
        raise _malformed(problems, where)
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = decode_object(line)
            business_key = read_key(resolve(row, key_steps, key))
            text = label_text(resolve(row, label_steps, label))
        except LineRefused as refused:
            problems.append(Problem(refused.reason, line=number, code=refused.code))
        except TypeError:
            reason = f"the label {label!r} must be text, a number, true, false or null"
            problems.append(Problem(reason, line=number, key=label, code="golden_label"))
        else:
            if business_key in seen:
                reason = f"the key is on line {seen[business_key]} already"
                problems.append(Problem(reason, line=number, key=key, code="golden_twice"))
            seen[business_key] = number
            if text is not None:
                labels[business_key] = text
        if len(problems) >= MAX_PROBLEMS:
            break
    if not problems and not labels:
        problems.append(Problem(f"no line has a label in {label!r}", key=label, code="golden_empty"))
    if problems:
        raise _malformed(problems, where)
    return labels


def labels_to_bytes(labels: Mapping[str, str]) -> bytes:
    """The labels alone, one JSON line each, sorted by key: what a job keeps of a golden file, whose lines may hold
    whole records. The same labels give the same bytes."""
    return b"".join(msgspec.json.encode({"key": key, "label": label}) + b"\n" for key, label in sorted(labels.items()))


def labels_from_bytes(data: bytes) -> dict[str, str]:
    return {row.key: row.label for row in map(_decode_label, filter(None, data.split(b"\n")))}


def _malformed(problems: Sequence[Problem], where: str) -> BadInput:
    do = "mend the golden file and drop the file again; nothing was spent"
    return BadInput("the golden file cannot be used", problems, where=where, do=do)


def label_text(value: Any) -> str | None:
    """A label as it is compared and shown: text as it is, other values as JSON; 1 and 1.0 are the same. None for null.
    Raises `TypeError` for a list or an object."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    raise TypeError(type(value).__name__)


class GoldenFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's answers compare. `labelled` records of the job have a label, `answered` of them an accepted answer,
    `right` of them the same label. `matrix[i][j]` counts records labelled `labels[i]` and answered `answers[j]`."""

    sha256: str
    """Of the labels as the job keeps them."""
    field: str
    labelled: int
    answered: int
    right: int
    labels: tuple[str, ...]
    """By frequency; those beyond `MOST_LABELS` are `(other)`."""
    answers: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class GoldenTally:
    """Compares while records stream by: `expect` for every record of the job, `answer` for accepted ones."""

    labels: dict[str, str]
    output_field: str
    _expected: dict[str, str] = field(default_factory=dict)
    _answers: dict[str, str | None] = field(default_factory=dict)

    def expect(self, business_key: str) -> None:
        label = self.labels.get(business_key)
        if label is not None:
            self._expected[business_key] = label

    def answer(self, business_key: str, output: msgspec.Raw) -> None:
        """The first accepted answer of a record is the one that counts."""
        if business_key in self.labels and business_key not in self._answers:
            self._answers[business_key] = _answer_text(_decode(output), pointer_reader(self.output_field))

    def figures(self, sha256: str) -> GoldenFigures:
        pairs = Counter((label, self._answers.get(key)) for key, label in self._expected.items())
        labels = _most_frequent(Counter(self._expected.values()), MOST_LABELS)
        rest = Counter(answer for _, answer in pairs.elements() if answer is not None and answer not in labels)
        often = Counter({text: n for text, n in rest.items() if n >= FEWEST and len(text) <= LONGEST_ANSWER})
        answers = labels + _most_frequent(often, MOST_LABELS - len(labels))
        table = Counter[tuple[str, str]]()
        for (label, answer), count in pairs.items():
            column = NO_ANSWER if answer is None else answer if answer in answers else OTHER
            table[label if label in labels else OTHER, column] += count
        rows = [*labels, *(name for name in (OTHER,) if any(row == name for row, _ in table))]
        columns = [*answers, *(name for name in (OTHER, NO_ANSWER) if any(column == name for _, column in table))]
        return GoldenFigures(
            sha256=sha256,
            field=self.output_field,
            labelled=len(self._expected),
            answered=sum(self._answers.get(key) is not None for key in self._expected),
            right=sum(count for (label, answer), count in pairs.items() if label == answer),
            labels=tuple(rows),
            answers=tuple(columns),
            matrix=tuple(tuple(table[row, column] for column in columns) for row in rows),
        )


def _most_frequent(counts: Counter[str], most: int) -> list[str]:
    return sorted(counts, key=lambda name: (-counts[name], name))[: max(0, most)]


def _answer_text(output: Any, steps: list[str]) -> str | None:
    try:
        return label_text(resolve(output, steps, ""))
    except (LineRefused, TypeError):
        return None

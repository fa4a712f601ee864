"""The `quality` section of the spec: checks on answers beyond their schema, and gates on the whole job."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, StringConstraints

from tallybatch.domain.spec_sections import Section

FILE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

FieldName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Share = Annotated[float, Field(ge=0, le=1)]


class Golden(Section):
    file: Annotated[str, StringConstraints(pattern=FILE_PATTERN)] = Field(
        description="Labelled records: a JSONL file in golden/<tenant>/, each line with the business key under "
        "input.key, as in the input, and the label."
    )
    field: FieldName = Field(description="Field (or JSON pointer) of the output that is compared with the label.")
    label: FieldName | None = Field(
        default=None,
        description="Field (or JSON pointer) of the label in the file; a line whose label is null has none. Default: "
        "the same as `field`.",
    )
    min_accuracy: Share = Field(
        description="Share of the job's labelled records that must be right, 0 to 1; one without an accepted answer "
        "is not right."
    )


class Quality(Section):
    rules: Annotated[tuple[Annotated[str, StringConstraints(min_length=1)], ...], Strict(False)] = Field(
        default=(),
        description="CEL expressions over `input` (the fields used) and `output` that must be true of each answer. "
        "Default: none.",
    )
    quotes: Annotated[tuple[FieldName, ...], Strict(False)] = Field(
        default=(),
        description="Fields (or JSON pointers, `*` for each element) of the output that must occur in the input, word "
        "for word, whatever the white space. Default: none.",
    )
    golden: Golden | None = Field(default=None, description="Accuracy gate on labelled records. Default: none.")
    min_acceptance: Share | None = Field(
        default=None, description="Share of records that must be accepted before publishing, 0 to 1. Default: no gate."
    )
    review_sample: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=0, description="Accepted records that people look at, a stratified sample. Default: 0."
    )

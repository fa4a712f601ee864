"""The table over outcome rows: its columns are the rows' own fields, and its partitions need no upkeep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from infra.constructs.athena import COLUMNS, PARTITIONS
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.outcomes import Outcome, RawRef, Usage

LEFT_OUT = {"output", "used", "output_cap"}
"""The answers themselves, and what only the retry policy reads."""


def _table(template: Mapping[str, Any]) -> Mapping[str, Any]:
    (found,) = [each for each in template["Resources"].values() if each["Type"] == "AWS::Glue::Table"]
    table: Mapping[str, Any] = found["Properties"]["TableInput"]
    return table


def test_the_columns_are_the_fields_of_an_outcome_row() -> None:
    assert {name for name, _ in COLUMNS} == set(Outcome.__struct_fields__) - LEFT_OUT
    types = dict(COLUMNS)
    for column, struct in (("usage", Usage), ("raw", RawRef)):
        assert re.findall(r"(\w+):", types[column]) == list(struct.__struct_fields__)
    for name in ("attempt", "tries", "cost_nano_usd"):
        assert types[name].endswith("int")


def test_a_partition_is_where_a_jobs_outcome_objects_are(template: Mapping[str, Any]) -> None:
    table = _table(template)
    (parts,) = table["Parameters"]["storage.location.template"].values()
    location = "".join(part if isinstance(part, str) else "bucket" for part in parts[1])
    keys = {"tenant": "acme", "job_key": "abc"}
    for name in PARTITIONS:
        location = location.replace(f"${{{name}}}", keys[name])
    assert location == "s3://bucket/" + JobKeys("acme", "abc").attempt(1).removesuffix("1/")
    assert [each["Name"] for each in table["PartitionKeys"]] == list(PARTITIONS)
    assert table["Parameters"]["projection.enabled"] == "true"
    assert all(table["Parameters"][f"projection.{name}.type"] == "injected" for name in PARTITIONS)


def test_a_row_that_cost_nothing_says_so_and_one_of_unknown_cost_does_not() -> None:
    row = Outcome("r", "k", "b", "s", 1, 1, "missing", cost_nano_usd=0)  # type: ignore[arg-type]
    assert b'"cost_nano_usd":0' in msgspec.json.encode(row)
    unknown = msgspec.structs.replace(row, cost_nano_usd=None)
    assert b"cost_nano_usd" not in msgspec.json.encode(unknown)

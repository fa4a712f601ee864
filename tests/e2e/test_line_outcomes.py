"""A part of `poe outcomes` on the shared stack: all that may become of a record, once on each provider."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import load_scenario
from tests.outcomes.expected import AT_ONCE, IN_ORDER
from tests.outcomes.expected_jobs import ALL_FAILED, SMALL_SETS
from tests.outcomes.expected_records import FALLBACKS, PEOPLE, PLAIN
from tests.outcomes.look import Cell
from tests.outcomes.play import play
from tests.outcomes.stage import Stage
from tests.support.deployed import Deployed

pytestmark = pytest.mark.xdist_group("e2e")

PLAYED = ((PLAIN, "gemini"), (PEOPLE, "bedrock"), (ALL_FAILED, "openai"), (FALLBACKS[0], "openai"))


@pytest.fixture(scope="module")
def cells(line: Deployed) -> Iterator[dict[str, list[Cell]]]:
    """Of each case, by its name: all are played at once."""
    stage = Stage(line)
    stage.take([case for case, _ in PLAYED])
    try:
        with ThreadPoolExecutor(len(PLAYED)) as pool:
            played = pool.map(lambda one: play(stage, *one), PLAYED)
            yield {case.name: cells for (case, _), cells in zip(PLAYED, played, strict=True)}
    finally:
        load_scenario(line)


@pytest.mark.parametrize("name", [case.name for case, _ in PLAYED])
def test_given_a_file_whose_records_meet_faults_when_it_is_dropped_then_each_ends_where_the_table_says(
    cells: dict[str, list[Cell]], name: str
) -> None:
    assert [cell for cell in cells[name] if cell.wrong] == []
    assert cells[name]


def test_given_the_table_when_read_then_no_case_and_no_cell_stands_for_two() -> None:
    cases = [*IN_ORDER, *AT_ONCE, *SMALL_SETS]
    names = [case.name for case in cases] + [case.again.name for case in cases if case.again]
    assert len(names) == len(set(names))
    named = [(group.cell, name) for case in cases for group in case.groups for name in case.providers if group.cell]
    assert len(named) == len(set(named)) >= 75
    assert all(len({group.tag for group in case.groups}) == len(case.groups) for case in cases)

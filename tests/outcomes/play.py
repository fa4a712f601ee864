"""A case from its drop to its last cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests.outcomes.cases import Case, Ends, Group, Step
from tests.outcomes.look import Cell, Look
from tests.outcomes.stage import Stage


def play(stage: Stage, case: Case, provider: str, *, dropped: bool = False) -> list[Cell]:
    """Its cells on one provider. What goes wrong on the way is a wrong cell: this never raises."""
    cells: list[Cell] = []
    try:
        cells.extend(_cells(stage, case, provider, dropped=dropped))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        name = f"job: {case.name}"
        cells.append(Cell(outcome=name, provider=provider, expected="an ending", reached="none", wrong=(problem,)))
    return cells


def _cells(stage: Stage, case: Case, provider: str, *, dropped: bool) -> Iterator[Cell]:
    if not dropped:
        stage.drop(case, provider)
    for action in case.begin:
        stage.act(action, case, provider)
    second = case.again
    job = stage.ended(case, provider)
    groups = case.groups
    yield from Look(stage, case, job, provider, groups).cells(case.ending_on(provider))
    for number, step in enumerate(case.steps, start=2):
        stage.act(step.do, case, provider)
        job = stage.ended(case, provider, run=number)
        groups = _changed(groups, step, provider)
        yield from Look(stage, case, job, provider, groups).cells(step.ending, step.cells)
    if second is not None:
        if case.again_at == "end":
            stage.drop_beside(second, case, provider)
        job = stage.ended(second, provider)
        yield from Look(stage, second, job, provider, second.groups).cells(second.ending_on(provider))


def _changed(groups: tuple[Group, ...], step: Step, provider: str) -> tuple[Group, ...]:
    ends: Mapping[str, Ends] = {**step.changed, **step.on.get(provider, {})}
    return tuple(replace(group, ends=ends[group.tag], on={}) if group.tag in ends else group for group in groups)

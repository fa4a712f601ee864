"""A part of the crash matrix of canary, approval and sweeps on every run of the tests; all of it is `poe prove`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.matrix import MODELS, matrices, providers
from tests.crash.watched import Watched

EVERY = 20


@pytest.fixture(scope="module", params=[name for name in MODELS if name in providers()])
def matrix(emulator: str, request: pytest.FixtureRequest) -> Iterator[Watched]:
    with matrices(emulator, [request.param], [Watched]) as [made]:
        assert isinstance(made, Watched)
        yield made


def test_given_a_watched_job_when_it_runs_undisturbed_then_each_of_its_watchers_has_points(matrix: Watched) -> None:
    struck = {point.call.task for trial in matrix.trials() for point in trial}
    deletes = [call for call in matrix.undisturbed.calls if call.label.startswith("DELETE ")]
    cancels = [call for call in matrix.undisturbed.calls if call.label.endswith((":cancel", "/cancel", "/stop"))]

    assert struck == Watched.tasks
    assert len(deletes) >= (0 if matrix.provider == "bedrock" else 4)
    assert len(cancels) == 1


def test_given_a_crash_while_a_job_is_watched_when_it_goes_on_then_nothing_is_lost_or_paid_twice(
    matrix: Watched,
) -> None:
    found = list(matrix.violations(matrix.trials()[::EVERY]))

    assert [(point.call.label, point.fault.value, point.then, wrong) for point, wrong in found if wrong] == []

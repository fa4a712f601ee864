"""Every call to AWS that a deployed function has made, held against its role: the emulator itself enforces no IAM.

It comes last (`conftest.py`), so that it sees what all tests of the run made the functions do. Alone, it sees one job.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tallybatch.settings import FUNCTIONS
from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import films, spec
from tests.support.iam_deployed import DeployedRoles
from tests.support.iam_needs import Call, recorded
from tests.support.local import calls_dir

pytestmark = pytest.mark.xdist_group("e2e")

ON_EVERY_PATH = {
    "BuildManifest", "AdmitJob", "PlanAttempt", "ReserveQuota", "SubmitShard", "PollShard", "CollectShard",
    "ReconcileShard", "ReconcileJob", "PublishShard", "SealJob",
}  # fmt: skip


@pytest.fixture
def calls(line: Deployed, local_state_dir: Path) -> list[Call]:
    """What the functions asked of AWS since the stack came up, and for a job of this test at least."""
    tenant = fresh_tenant("privileges")
    line.push_spec(tenant, spec())
    job = line.run(tenant, films(40))
    assert job.state == "COMPLETED", job.reason
    return recorded(calls_dir(local_state_dir))


def test_given_all_that_the_functions_did_when_held_against_their_roles_then_aws_would_have_let_them(
    line: Deployed, calls: list[Call]
) -> None:
    # GIVEN
    stack = line.status.stack
    seen = {call.function.removeprefix(f"{stack}-") for call in calls}
    assert seen >= ON_EVERY_PATH
    # WHEN
    roles = DeployedRoles(line)
    denied = roles.denied(calls)
    # THEN
    print(f"functions that made no call: {sorted({model.function for model in FUNCTIONS} - seen)}")  # noqa: T201
    print("granted, and not needed by any call:", *roles.unused(calls), sep="\n  ")  # noqa: T201
    assert not denied, "\n".join(denied)

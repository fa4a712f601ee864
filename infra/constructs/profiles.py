"""What each function may touch and how big it is: one row per settings model, from which its role is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tallybatch import settings

FULL_CORE_MB: Final = 1769
"""At this memory size a function has one full vCPU (Lambda Developer Guide, "Configure Lambda function memory")."""
LONGEST_S: Final = 900

READ_LEDGER: Final = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query")
MOVE_STATE: Final = ("dynamodb:PutItem",)
HOLD_QUOTA: Final = (*READ_LEDGER, *MOVE_STATE, "dynamodb:DeleteItem")
"""A transaction needs the rights of its parts (DynamoDB Developer Guide, "Transactions and IAM"); a reservation that
ends is deleted."""
CLAIM_RECORDS: Final = ("dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """`reads`, `writes` and `tags` are key prefixes of the bucket. A writer may also read what it writes: a write-once
    that finds an object compares it. `versions`: may read versions by their id. `tags`: may set the tags of what others
    wrote. `spool_mb` is the size of /tmp. `asynchronous`: events invoke it, so failed ones go to a dead-letter queue.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    table: tuple[str, ...] = READ_LEDGER + MOVE_STATE
    memory_mb: int = FULL_CORE_MB
    timeout_s: int = LONGEST_S
    spool_mb: int = 512
    asynchronous: bool = False
    lists_jobs: bool = False
    """Whether it walks the ledger's list of jobs, which is an index with a name of its own in IAM."""

    @property
    def readable(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


PROFILES: Final[Mapping[type[settings.StoreSettings], Profile]] = MappingProxyType(
    {
        settings.BuildManifest: Profile(
            reads=("inbox/", "specs/", "golden/", "prices/"),
            writes=("jobs/", "quarantine/", "results/"),
            versions=("inbox/",),
            tags=("inbox/",),
            spool_mb=10_240,
            asynchronous=True,
        ),
        settings.DiscoverBackfill: Profile(writes=("inbox/",), memory_mb=512, timeout_s=300, asynchronous=True),
        settings.AdmitJob: Profile(reads=("jobs/",), table=HOLD_QUOTA, memory_mb=512, timeout_s=120),
        settings.PlanAttempt: Profile(
            reads=("review/",), writes=("jobs/",), table=READ_LEDGER + MOVE_STATE + CLAIM_RECORDS, spool_mb=2048
        ),
        settings.ReserveQuota: Profile(table=HOLD_QUOTA, memory_mb=512, timeout_s=120),
        settings.ReleaseQuota: Profile(table=HOLD_QUOTA, memory_mb=512, timeout_s=120),
        settings.SubmitShard: Profile(writes=("jobs/",), table=HOLD_QUOTA + CLAIM_RECORDS, spool_mb=2048),
        settings.AnswerShard: Profile(
            writes=("jobs/", "provider/"), table=READ_LEDGER + MOVE_STATE + CLAIM_RECORDS, memory_mb=512, spool_mb=2048
        ),
        settings.PollShard: Profile(reads=("provider/",), table=HOLD_QUOTA, memory_mb=512, timeout_s=120),
        settings.CollectShard: Profile(reads=("provider/",), writes=("jobs/",), spool_mb=4096),
        settings.ReconcileShard: Profile(
            writes=("jobs/", "quarantine/"), table=READ_LEDGER + MOVE_STATE + CLAIM_RECORDS, spool_mb=4096
        ),
        settings.ReconcileJob: Profile(writes=("jobs/",), spool_mb=2048),
        settings.JudgeCanary: Profile(writes=("jobs/",), timeout_s=300),
        settings.ApproveCanary: Profile(reads=("jobs/",), memory_mb=512, timeout_s=60),
        settings.PublishShard: Profile(writes=("jobs/", "results/"), table=(), spool_mb=4096),
        settings.SealJob: Profile(
            reads=("quarantine/",),
            writes=("jobs/", "results/", "review/"),
            table=HOLD_QUOTA + CLAIM_RECORDS,
            spool_mb=4096,
        ),
        settings.FailJob: Profile(
            reads=("results/", "quarantine/"), writes=("jobs/",), table=HOLD_QUOTA, timeout_s=300
        ),
        settings.Sweep: Profile(
            lists_jobs=True,
            reads=("provider/",),
            writes=("jobs/", "deletions/"),
            table=HOLD_QUOTA,
            memory_mb=1024,
            asynchronous=True,
        ),
        settings.ResumeJob: Profile(reads=("quarantine/",), writes=("jobs/",), memory_mb=512, timeout_s=300),
        settings.ResolveReview: Profile(reads=("jobs/",), writes=("review/",)),
    }
)

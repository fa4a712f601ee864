"""Submit: a shard that is lost before anything of it is out gives its quota back.

It would keep it from the others of its job, and from its own retry, which goes by another name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallybatch.contracts import ReleaseReply, ShardItem
from tallybatch.ports import Clock, Ledger
from tallybatch.steps import reserve_quota


@dataclass(frozen=True, slots=True)
class Ports:
    ledger: Ledger
    clock: Clock


def run(item: ShardItem, ports: Ports) -> ReleaseReply:
    """What may be out at the provider stays reserved: the next round goes on with it, or the sweep finds its end."""
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    if row is not None and row.state in reserve_quota.OUT:
        return ReleaseReply(released=False)
    return ReleaseReply(released=reserve_quota.release(item, ports.ledger, ports.clock))

"""The port Ledger on the single DynamoDB table: jobs, submissions and pins; records are in `dynamodb_records`,
quota pools in `dynamodb_quotas`, budgets in `dynamodb_budgets`.

Table: partition key `pk`, sort key `sk`, both strings. Index `jobs` (all attributes): partition key `listing`, sort key
`listed_at`; only job items carry them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from botocore.exceptions import ClientError

from tallybatch.adapters.aws_errors import calling, error_code
from tallybatch.adapters.dynamodb_budgets import DynamoDBBudgets
from tallybatch.adapters.dynamodb_items import (
    Item,
    attribute,
    item_of,
    job_pk,
    key_of,
    moment,
    pin_pk,
    plain,
    row_of,
    submission_sk,
)
from tallybatch.adapters.dynamodb_quotas import DynamoDBQuotas
from tallybatch.adapters.dynamodb_records import DynamoDBRecords
from tallybatch.domain.budgets import Budget, BudgetHold
from tallybatch.domain.errors import LedgerBusy
from tallybatch.domain.quota_rows import Hold, QuotaChange, QuotaPool
from tallybatch.domain.rows import AcceptedAnswer, Job, RecordClaim, RecordRow, Submission
from tallybatch.ports import ClaimResult, QuotaMove

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

INDEX = "jobs"
LISTING = "JOBS"
JOB_SK = "META"
PIN_SK = "PIN"

_CasRow = TypeVar("_CasRow", Job, Submission)


class DynamoDBLedger:
    """`workers` batches of record statements are in flight at once; `sleep` takes seconds.

    A conditional write carries a fresh `write_id`. If its reply is lost, the SDK sends it again and the condition fails
    on our own row: seeing our `write_id` there makes it the success that it was. (If somebody has moved the row on in
    between, the answer is "lost", which is the safe side: whoever lost does not spend.)
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        *,
        workers: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._table = table
        self._records = DynamoDBRecords(client, table, workers=workers, sleep=sleep)
        self._quotas = DynamoDBQuotas(client, table)
        self._budgets = DynamoDBBudgets(client, table)

    def job(self, job_key: str) -> Job | None:
        item = self._read(job_pk(job_key), JOB_SK)
        return None if item is None else row_of(item, Job)

    def jobs(self, *, tenant: str = "", since: float = 0) -> Iterator[Job]:
        """Newest first by the moment of creation, `since` (Unix seconds) included. The index follows a write within
        about a second (eventually consistent)."""
        query = {
            "KeyConditionExpression": "listing = :listing AND listed_at >= :since",
            "ExpressionAttributeValues": {":listing": {"S": LISTING}, ":since": {"S": moment(since)}},
        }
        if tenant:
            query["FilterExpression"] = "tenant = :tenant"
            query["ExpressionAttributeValues"] |= {":tenant": {"S": tenant}}  # type: ignore[operator]
        for item in self._listed(query):
            yield row_of(item, Job)

    def jobs_with_prefix(self, prefix: str, limit: int = 2) -> Sequence[Job]:
        """Newest first. A whole key costs one read. A shorter prefix walks the index until `limit` jobs are found; to
        show that a prefix is unique it reads all of it: with rows of 1 KB about 0.2 s and $0.00002 per 1,000 jobs."""
        if limit < 1:
            return []
        if prefix and (exact := self.job(prefix)):
            return [exact]
        query = {
            "KeyConditionExpression": "listing = :listing",
            "ExpressionAttributeValues": {":listing": {"S": LISTING}},
        }
        if prefix:
            query["FilterExpression"] = "begins_with(job_key, :prefix)"
            query["ExpressionAttributeValues"] |= {":prefix": {"S": prefix}}  # type: ignore[operator]
        return [row_of(item, Job) for item in islice(self._listed(query), limit)]

    def put_job(self, job: Job, *, expected_version: int | None) -> Job | None:
        listed = {
            "listing": {"S": LISTING},
            "listed_at": {"S": f"{moment(job.created_at)}#{job.job_key}"},
        }
        return self._compare_and_set(job, job_pk(job.job_key), JOB_SK, expected_version, listed)

    def submission(self, job_key: str, attempt: int, shard_id: str) -> Submission | None:
        item = self._read(job_pk(job_key), submission_sk(attempt, shard_id))
        return None if item is None else row_of(item, Submission)

    def submissions(self, job_key: str, attempt: int | None = None) -> Sequence[Submission]:
        prefix = "SUB#" if attempt is None else submission_sk(attempt)
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": {"S": job_pk(job_key)}, ":sk": {"S": prefix}},
        )
        with calling(f"table {self._table}", LedgerBusy):
            return [row_of(item, Submission) for page in pages for item in page["Items"]]

    def put_submission(self, submission: Submission, *, expected_version: int | None) -> Submission | None:
        sk = submission_sk(submission.attempt, submission.shard_id)
        return self._compare_and_set(submission, job_pk(submission.job_key), sk, expected_version, {})

    def claim_records(self, claims: Sequence[RecordClaim]) -> Sequence[ClaimResult]:
        return self._records.claim(claims)

    def take_over_records(self, claims: Sequence[RecordClaim], *, from_job: str) -> Sequence[ClaimResult]:
        return self._records.take_over(claims, from_job=from_job)

    def accept_records(self, answers: Sequence[AcceptedAnswer]) -> Sequence[bool]:
        return self._records.accept(answers)

    def withdraw_records(self, answers: Mapping[str, str]) -> None:
        self._records.withdraw(answers)

    def records(self, record_keys: Sequence[str]) -> Mapping[str, RecordRow]:
        return self._records.read(record_keys)

    def pinned(self, kind: str, key: str) -> str:
        item = self._read(pin_pk(kind, key), PIN_SK)
        return str(plain(item["value"])) if item else ""

    def pin(self, kind: str, key: str, value: str) -> str:
        item = key_of(pin_pk(kind, key), PIN_SK) | {"value": {"S": value}}
        stored = self._put(item, {"ConditionExpression": "attribute_not_exists(pk)"})
        return value if stored is None else str(plain(stored["value"]))

    def quota_pool(self, name: str) -> QuotaPool:
        return self._quotas.pool(name)

    def quota_line(self, name: str) -> tuple[QuotaPool, Sequence[Hold]]:
        return self._quotas.line(name)

    def quota_hold(self, name: str, place: str) -> Hold | None:
        return self._quotas.hold(name, place)

    def quota_holds(self, name: str) -> Iterator[Hold]:
        return self._quotas.holds(name)

    def quota_changes(self, name: str) -> Sequence[QuotaChange]:
        return self._quotas.changes(name)

    def enter_line(self, hold: Hold) -> bool:
        return self._quotas.enter(hold)

    def keep_place(self, hold: Hold) -> bool:
        return self._quotas.keep(hold)

    def leave_line(self, hold: Hold) -> bool:
        return self._quotas.leave(hold)

    def move_quota(self, pool: QuotaPool, move: QuotaMove) -> bool:
        return self._quotas.move(pool, move)

    def budget(self, tenant: str, period: str) -> Budget:
        return self._budgets.budget(tenant, period)

    def budget_hold(self, tenant: str, period: str, job_key: str) -> BudgetHold | None:
        return self._budgets.hold(tenant, period, job_key)

    def budget_holds(self, tenant: str, period: str) -> Iterator[BudgetHold]:
        return self._budgets.holds(tenant, period)

    def move_budget(self, budget: Budget, hold: BudgetHold | None = None) -> bool:
        return self._budgets.move(budget, hold)

    def _read(self, pk: str, sk: str) -> Item | None:
        with calling(f"table {self._table} {pk}/{sk}", LedgerBusy):
            reply = self._client.get_item(TableName=self._table, Key=key_of(pk, sk), ConsistentRead=True)
        return reply.get("Item")

    def _listed(self, query: Mapping[str, Any]) -> Iterator[Item]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table, IndexName=INDEX, ScanIndexForward=False, **query
        )
        with calling(f"table {self._table} index {INDEX}", LedgerBusy):
            for page in pages:
                yield from page["Items"]

    def _compare_and_set(
        self, row: _CasRow, pk: str, sk: str, expected_version: int | None, more: Item
    ) -> _CasRow | None:
        if expected_version is None:
            condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
            stored = msgspec.structs.replace(row, version=1)
        else:
            condition = {
                "ConditionExpression": "#version = :expected",
                "ExpressionAttributeNames": {"#version": "version"},
                "ExpressionAttributeValues": {":expected": attribute(expected_version)},
            }
            stored = msgspec.structs.replace(row, version=expected_version + 1)
        item = item_of(stored, pk, sk) | {"version": attribute(stored.version)} | more
        item["write_id"] = {"S": uuid.uuid4().hex}
        found = self._put(item, condition)
        return stored if found is None or found.get("write_id") == item["write_id"] else None

    def _put(self, item: Item, condition: Mapping[str, Any]) -> Item | None:
        """None if the item was written, else the item whose state failed the condition (empty if there is none)."""
        where = f"table {self._table} {item['pk']['S']}/{item['sk']['S']}"
        with calling(where, LedgerBusy):
            try:
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                    **condition,
                )
            except ClientError as error:
                if error_code(error) != "ConditionalCheckFailedException":
                    raise
                found: Item = error.response.get("Item", {})  # type: ignore[assignment]
                return found
        return None

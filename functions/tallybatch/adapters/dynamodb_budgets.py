"""Budgets in the single table: `BUDGET#tenant#period` with `TOTALS`, and one `JOB#job_key` for each job's part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError
from msgspec.structs import replace

from tallybatch.adapters.aws_errors import calling, error_code
from tallybatch.adapters.dynamodb_items import Item, attribute, item_of, key_of, row_of
from tallybatch.domain.budgets import Budget, BudgetHold
from tallybatch.domain.errors import LedgerBusy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TOTALS = "TOTALS"
_LOST = frozenset({"None", "ConditionalCheckFailed", "TransactionConflict"})


class DynamoDBBudgets:
    """A transaction whose reply was lost is sent again by the SDK with the same token (see `dynamodb_quotas`)."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def budget(self, tenant: str, period: str) -> Budget:
        item = self._read(_pk(tenant, period), TOTALS)
        return Budget(tenant=tenant, period=period) if item is None else row_of(item, Budget)

    def hold(self, tenant: str, period: str, job_key: str) -> BudgetHold | None:
        item = self._read(_pk(tenant, period), f"JOB#{job_key}")
        return None if item is None else row_of(item, BudgetHold)

    def holds(self, tenant: str, period: str) -> Iterator[BudgetHold]:
        pk = _pk(tenant, period)
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :job)",
            ExpressionAttributeValues={":pk": {"S": pk}, ":job": {"S": "JOB#"}},
        )
        with calling(f"table {self._table} {pk}", LedgerBusy):
            for page in pages:
                yield from (row_of(item, BudgetHold) for item in page["Items"])

    def move(self, budget: Budget, hold: BudgetHold | None) -> bool:
        pk = _pk(budget.tenant, budget.period)
        totals: Item = {
            "TableName": self._table,
            "Item": item_of(replace(budget, version=budget.version + 1), pk, TOTALS),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
        if budget.version:
            totals |= {
                "ConditionExpression": "#version = :expected",
                "ExpressionAttributeNames": {"#version": "version"},
                "ExpressionAttributeValues": {":expected": attribute(budget.version)},
            }
        actions: list[Item] = [{"Put": totals}]
        if hold is not None:
            actions.append({"Put": {"TableName": self._table, "Item": item_of(hold, pk, f"JOB#{hold.job_key}")}})
        with calling(f"table {self._table} {pk}", LedgerBusy):
            try:
                self._client.transact_write_items(TransactItems=actions)  # type: ignore[arg-type]
            except ClientError as error:
                if error_code(error) != "TransactionCanceledException":
                    raise
                why = {reason.get("Code", "None") for reason in error.response.get("CancellationReasons", [])} - _LOST
                if why:
                    told = ", ".join(sorted(why))
                    raise LedgerBusy("a transaction was cancelled", where=pk, why=told) from error
                return False
        return True

    def _read(self, pk: str, sk: str) -> Item | None:
        with calling(f"table {self._table} {pk}/{sk}", LedgerBusy):
            reply = self._client.get_item(TableName=self._table, Key=key_of(pk, sk), ConsistentRead=True)
        return reply.get("Item")


def _pk(tenant: str, period: str) -> str:
    return f"BUDGET#{tenant}#{period}"

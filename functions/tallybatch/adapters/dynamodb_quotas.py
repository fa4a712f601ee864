"""Quota pools in the single table: totals, the line, holds and the audit of a pool share one partition.

| sk | what |
|---|---|
| `CHANGE#moment#nonce` | what a person has set |
| `HOLD#place` | a wish or a reservation |
| `TOTALS` | the pool, with its version |
| `WAIT#rank#moment#place` | a wish once more, in the order of turns |
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from msgspec.structs import replace

from tallybatch.adapters.aws_errors import calling, error_code
from tallybatch.adapters.dynamodb_items import Item, attribute, item_of, key_of, moment, row_of
from tallybatch.domain.errors import LedgerBusy
from tallybatch.domain.quota_rows import Hold, QuotaChange, QuotaPool
from tallybatch.ports import QuotaMove

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LINE_LIMIT = 1000
"""Of those who wait, so many are looked at: with 300 bytes each, one page of a query."""
TOTALS = "TOTALS"
_LOST = frozenset({"ConditionalCheckFailed", "TransactionConflict"})
_NOT_RESERVED = "attribute_not_exists(reserved_at)"
_RESERVED = "attribute_exists(reserved_at)"


def quota_pk(name: str) -> str:
    return f"QUOTA#{name}"


class DynamoDBQuotas:
    """A transaction whose reply was lost is sent again by the SDK with the same token, which DynamoDB answers as it did
    the first (API reference, TransactWriteItems, ClientRequestToken)."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def pool(self, name: str) -> QuotaPool:
        item = self._read(name, TOTALS)
        return QuotaPool(name=name) if item is None else row_of(item, QuotaPool)

    def line(self, name: str) -> tuple[QuotaPool, Sequence[Hold]]:
        pool, waiting = QuotaPool(name=name), []
        for item in islice(self._query(name, "sk BETWEEN :from AND :to", TOTALS, "WAIT~"), LINE_LIMIT + 1):
            if item["sk"]["S"] == TOTALS:
                pool = row_of(item, QuotaPool)
            else:
                waiting.append(row_of(item, Hold))
        return pool, waiting

    def hold(self, name: str, place: str) -> Hold | None:
        item = self._read(name, f"HOLD#{place}")
        return None if item is None else row_of(item, Hold)

    def holds(self, name: str) -> Iterator[Hold]:
        return (row_of(item, Hold) for item in self._query(name, "begins_with(sk, :from)", "HOLD#"))

    def changes(self, name: str) -> Sequence[QuotaChange]:
        return [row_of(item, QuotaChange) for item in self._query(name, "begins_with(sk, :from)", "CHANGE#")]

    def enter(self, hold: Hold) -> bool:
        return self._transact(
            hold.pool, [self._put(hold, _hold_sk(hold), "attribute_not_exists(pk)"), self._put(hold, _turn_sk(hold))]
        )

    def keep(self, hold: Hold) -> bool:
        item = item_of(hold, quota_pk(hold.pool), _turn_sk(hold))
        with calling(f"table {self._table} {item['pk']['S']}", LedgerBusy):
            try:
                self._client.put_item(TableName=self._table, Item=item, ConditionExpression="attribute_exists(pk)")
            except ClientError as error:
                if error_code(error) != "ConditionalCheckFailedException":
                    raise
                return False
        return True

    def leave(self, hold: Hold) -> bool:
        waits = f"attribute_exists(pk) AND {_NOT_RESERVED}"
        return self._transact(
            hold.pool, [self._delete(hold, _hold_sk(hold), waits), self._delete(hold, _turn_sk(hold))]
        )

    def move(self, pool: QuotaPool, move: QuotaMove) -> bool:
        actions = [self._put_totals(pool)]
        if take := move.take:
            actions += [self._put(take, _hold_sk(take), _NOT_RESERVED), self._delete(take, _turn_sk(take))]
        if give := move.give:
            actions.append(self._delete(give, _hold_sk(give), _RESERVED))
        if back := move.back:
            actions += [self._put(back, _hold_sk(back), _RESERVED), self._put(back, _turn_sk(back))]
        if note := move.note:
            item = item_of(note, quota_pk(pool.name), f"CHANGE#{moment(note.at)}#{uuid.uuid4().hex}")
            actions.append({"Put": {"TableName": self._table, "Item": item}})
        return self._transact(pool.name, actions)

    def _put_totals(self, pool: QuotaPool) -> Item:
        stored = replace(pool, version=pool.version + 1)
        put: Item = {"TableName": self._table, "Item": item_of(stored, quota_pk(pool.name), TOTALS)}
        if pool.version == 0:
            return {"Put": {**put, "ConditionExpression": "attribute_not_exists(pk)"}}
        condition = {
            "ConditionExpression": "#version = :expected",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": {":expected": attribute(pool.version)},
        }
        return {"Put": {**put, **condition}}

    def _put(self, hold: Hold, sk: str, condition: str = "") -> Item:
        put: Item = {"TableName": self._table, "Item": item_of(hold, quota_pk(hold.pool), sk)}
        return {"Put": {**put, **({"ConditionExpression": condition} if condition else {})}}

    def _delete(self, hold: Hold, sk: str, condition: str = "") -> Item:
        delete: Item = {"TableName": self._table, "Key": key_of(quota_pk(hold.pool), sk)}
        return {"Delete": {**delete, **({"ConditionExpression": condition} if condition else {})}}

    def _transact(self, name: str, actions: list[Item]) -> bool:
        with calling(f"table {self._table} {quota_pk(name)}", LedgerBusy):
            try:
                self._client.transact_write_items(TransactItems=actions)  # type: ignore[arg-type]
            except ClientError as error:
                if error_code(error) != "TransactionCanceledException":
                    raise
                why = {reason.get("Code", "None") for reason in error.response.get("CancellationReasons", [])}
                if why - {"None"} - _LOST:
                    raise LedgerBusy(
                        "a transaction was cancelled", where=quota_pk(name), why=", ".join(sorted(why - {"None"}))
                    ) from error
                return False
        return True

    def _read(self, name: str, sk: str) -> Item | None:
        with calling(f"table {self._table} {quota_pk(name)}/{sk}", LedgerBusy):
            reply = self._client.get_item(TableName=self._table, Key=key_of(quota_pk(name), sk), ConsistentRead=True)
        return reply.get("Item")

    def _query(self, name: str, condition: str, begin: str, end: str = "") -> Iterator[Mapping[str, Any]]:
        values = {":pk": {"S": quota_pk(name)}, ":from": {"S": begin}} | ({":to": {"S": end}} if end else {})
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression=f"pk = :pk AND {condition}",
            ExpressionAttributeValues=values,
        )
        with calling(f"table {self._table} {quota_pk(name)}", LedgerBusy):
            for page in pages:
                yield from page["Items"]


def _hold_sk(hold: Hold) -> str:
    return f"HOLD#{hold.place}"


def _turn_sk(hold: Hold) -> str:
    return f"WAIT#{hold.rank}#{moment(hold.asked_at)}#{hold.place}"

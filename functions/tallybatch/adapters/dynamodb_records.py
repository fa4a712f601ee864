"""Claims and accepts of records in bulk: 25 conditional PartiQL statements per call, each answered on its own.

One write per record and claim, one per record and accept; reading back costs only for records that were refused.
A record's nonce is its owner: a claim, take-over or accept that meets what it wanted to write is a success, so any
statement may be repeated, and one whose reply was lost does no harm.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from tallybatch.adapters.aws_errors import calling, is_busy
from tallybatch.adapters.dynamodb_items import Item, key_of, record_pk
from tallybatch.domain.errors import LedgerBusy, Permanent
from tallybatch.domain.rows import NOBODY, AcceptedAnswer, RecordClaim, RecordRow
from tallybatch.ports import ClaimOutcome, ClaimResult

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

STATEMENTS_PER_CALL = 25
"""Most that BatchExecuteStatement takes; it refuses two statements on one item (DynamoDB developer guide, PartiQL)."""
KEYS_PER_READ = 100
"""Most that BatchGetItem takes."""
MAX_ROUNDS = 10
"""Calls in a row that may bring nothing forward before the table counts as busy."""
BASE_DELAY_S = 0.05
MAX_DELAY_S = 5.0
RECORD_SK = "REC"

_REPEAT = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)
_REFUSED = frozenset({"ConditionalCheckFailed", "DuplicateItem"})

_T = TypeVar("_T")
_R = TypeVar("_R")


class DynamoDBRecords:
    """`workers` calls are in flight at once. Raises `LedgerBusy` if the table takes nothing for `MAX_ROUNDS` calls."""

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
        self._workers = workers
        self._sleep = sleep
        where = f'WHERE "pk" = ? AND "sk" = \'{RECORD_SK}\' AND "owner" = ? AND "answer" IS MISSING'
        item = f"{{'pk': ?, 'sk': '{RECORD_SK}', 'owner': ?, 'attempt': ?, 'reason': ?}}"
        self._insert = f'INSERT INTO "{table}" VALUE {item}'
        self._accept = f'UPDATE "{table}" SET "answer" = ? {where}'  # noqa: S608
        self._withdraw = (
            f'UPDATE "{table}" SET "owner" = ? REMOVE "answer" '  # noqa: S608
            f'WHERE "pk" = ? AND "sk" = \'{RECORD_SK}\' AND "answer"."uri" = ?'
        )
        self._take = f'UPDATE "{table}" SET "owner" = ? SET "attempt" = ? SET "reason" = ? {where}'  # noqa: S608

    def claim(self, claims: Sequence[RecordClaim]) -> list[ClaimResult]:
        """One statement per record: of several claims on one record within a call the first is sent."""
        first: dict[str, RecordClaim] = {}
        for claim in claims:
            first.setdefault(claim.record_key, claim)
        rows = self._claimed(first)
        return [_judge(claim, rows[claim.record_key]) for claim in claims]

    def take_over(self, claims: Sequence[RecordClaim], *, from_job: str) -> list[ClaimResult]:
        """A record that `from_job` never claimed, and nobody else, is claimed afresh."""
        first: dict[str, RecordClaim] = {}
        for claim in claims:
            first.setdefault(claim.record_key, claim)
        statements = {
            key: _statement(
                self._take,
                {"S": claim.job_key},
                {"N": str(claim.attempt)},
                {"S": claim.reason},
                {"S": record_pk(key)},
                {"S": from_job},
            )
            for key, claim in first.items()
        }
        found = self._written(statements, {key: _fresh(claim) for key, claim in first.items()})
        unclaimed = {key: first[key] for key, row in found.items() if row is None}
        rows = {key: row for key, row in found.items() if row is not None}
        rows |= self._claimed(unclaimed)
        return [_judge(claim, rows[claim.record_key]) for claim in claims]

    def accept(self, answers: Sequence[AcceptedAnswer]) -> list[bool]:
        """Several answers for one record within a call are tried one after the other."""
        stored: dict[int, bool] = {}
        waiting = list(enumerate(answers))
        while waiting:
            turn: dict[str, tuple[int, AcceptedAnswer]] = {}
            for place, answer in waiting:
                turn.setdefault(answer.record_key, (place, answer))
            rows = self._accepted([answer for _, answer in turn.values()])
            for key, (place, answer) in turn.items():
                row = rows[key]
                stored[place] = row is not None and row.answer == answer
            waiting = [(place, answer) for place, answer in waiting if place not in stored]
        return [stored[place] for place in range(len(answers))]

    def withdraw(self, answers: Mapping[str, str]) -> None:
        """One statement per record; one that finds another answer than the named has nothing to do."""
        statements = {
            key: _statement(self._withdraw, {"S": NOBODY}, {"S": record_pk(key)}, {"S": uri})
            for key, uri in answers.items()
        }
        nobodys = {key: RecordRow(record_key=key, owner=NOBODY, attempt=0) for key in answers}
        self._written(statements, nobodys)

    def read(self, record_keys: Sequence[str]) -> dict[str, RecordRow]:
        """Strongly consistent; 100 keys per call, unprocessed keys again until none is left."""
        found: dict[str, RecordRow] = {}
        for rows in self._parallel(self._read_some, _chunks(dict.fromkeys(record_keys), KEYS_PER_READ)):
            found |= rows
        return found

    def _accepted(self, answers: Sequence[AcceptedAnswer]) -> dict[str, RecordRow | None]:
        statements: dict[str, Item] = {}
        wished: dict[str, RecordRow] = {}
        for answer in answers:
            key = answer.record_key
            statements[key] = _statement(self._accept, _stored(answer), {"S": record_pk(key)}, {"S": answer.job_key})
            wished[key] = RecordRow(record_key=key, owner=answer.job_key, attempt=answer.attempt, answer=answer)
        return self._written(statements, wished)

    def _claimed(self, claims: Mapping[str, RecordClaim]) -> dict[str, RecordRow]:
        statements = {
            key: _statement(
                self._insert,
                {"S": record_pk(key)},
                {"S": claim.job_key},
                {"N": str(claim.attempt)},
                {"S": claim.reason},
            )
            for key, claim in claims.items()
        }
        rows = self._written(statements, {key: _fresh(claim) for key, claim in claims.items()})
        held = {key: row for key, row in rows.items() if row is not None}
        if len(held) != len(claims):
            raise self._busy(f"{len(claims) - len(held)} of {len(claims)} records were refused and then not found")
        return held

    def _written(self, statements: Mapping[str, Item], wished: Mapping[str, RecordRow]) -> dict[str, RecordRow | None]:
        """Carry out one statement per record key. Returns what is stored then: the wished row if the statement won,
        else the row that refused it, None if there is no such item."""
        stored: dict[str, RecordRow | None] = {}
        unread: list[str] = []
        chunks = _chunks(statements.items(), STATEMENTS_PER_CALL)
        for won, refused in self._parallel(self._execute, chunks):
            stored.update((key, wished[key]) for key in won)
            for key, row in refused.items():
                if row is None:
                    unread.append(key)
                else:
                    stored[key] = row
        read_back = self.read(unread)
        stored.update((key, read_back.get(key)) for key in unread)
        if len(stored) != len(statements):
            raise self._busy(f"{len(statements) - len(stored)} of {len(statements)} statements were left over")
        return stored

    def _execute(self, chunk: Sequence[tuple[str, Item]]) -> tuple[list[str], dict[str, RecordRow | None]]:
        """The keys whose statement won, and those that were refused with the item that came along (None: none did)."""
        won: list[str] = []
        refused: dict[str, RecordRow | None] = {}
        pending = list(chunk)
        idle_rounds = 0
        while pending:
            answers = self._batch([statement for _, statement in pending])
            again = pending[len(answers) :]
            for (key, statement), answer in zip(pending, answers, strict=False):
                error = answer.get("Error")
                if error is None:
                    won.append(key)
                elif error["Code"] in _REFUSED:
                    item = error.get("Item") or answer.get("Item")
                    refused[key] = _row(key, item) if item else None
                elif error["Code"] in _REPEAT:
                    again.append((key, statement))
                else:
                    raise Permanent(
                        "DynamoDB refused a statement",
                        where=f"table {self._table} {record_pk(key)}",
                        why=f"{error['Code']}: {error.get('Message', '')}",
                        do="check the function's role and the table's keys",
                    )
            idle_rounds = idle_rounds + 1 if len(again) == len(pending) else 0
            pending = again
            self._pause_if(
                bool(pending), idle_rounds, f"{len(pending)} of {len(chunk)} statements were not carried out"
            )
        return won, refused

    def _batch(self, statements: list[Item]) -> list[dict[str, Any]]:
        """The answers in the statements' order; fewer, or none, where the table did not get to it."""
        try:
            reply = self._client.batch_execute_statement(Statements=statements)  # type: ignore[arg-type]
        except (ClientError, HTTPClientError, NoConnection) as error:
            if is_busy(error):
                return []
            raise
        answers: list[dict[str, Any]] = reply.get("Responses", [])[: len(statements)]  # type: ignore[assignment]
        return answers

    def _read_some(self, record_keys: Sequence[str]) -> dict[str, RecordRow]:
        found: dict[str, RecordRow] = {}
        pending: list[Any] = [key_of(record_pk(key), RECORD_SK) for key in record_keys]
        idle_rounds = 0
        while pending:
            with calling(f"table {self._table}", LedgerBusy):
                reply = self._client.batch_get_item(
                    RequestItems={self._table: {"Keys": pending, "ConsistentRead": True}}
                )
            for item in reply["Responses"].get(self._table, ()):
                key = item["pk"]["S"].removeprefix(record_pk(""))
                found[key] = _row(key, item)
            unprocessed = reply.get("UnprocessedKeys", {})
            again: list[Any] = list(unprocessed[self._table]["Keys"]) if self._table in unprocessed else []
            idle_rounds = idle_rounds + 1 if len(again) == len(pending) else 0
            pending = again
            self._pause_if(bool(pending), idle_rounds, f"{len(pending)} of {len(record_keys)} keys were not read")
        return found

    def _pause_if(self, pending: bool, idle_rounds: int, why: str) -> None:
        if not pending:
            return
        if idle_rounds >= MAX_ROUNDS:
            raise self._busy(f"{why} in {MAX_ROUNDS} rounds")
        ceiling = min(MAX_DELAY_S, BASE_DELAY_S * 2**idle_rounds)
        self._sleep(ceiling * (0.5 + random.random() / 2))  # noqa: S311

    def _parallel(self, work: Callable[[_T], _R], chunks: Iterable[_T]) -> Iterable[_R]:
        todo = list(chunks)
        if len(todo) < 2 or self._workers < 2:
            return map(work, todo)
        with ThreadPoolExecutor(max_workers=min(self._workers, len(todo))) as pool:
            return list(pool.map(work, todo))

    def _busy(self, why: str) -> LedgerBusy:
        return LedgerBusy(
            "the ledger did not keep up",
            where=f"table {self._table}",
            why=why,
            do="the same call may be repeated: what was carried out is recognised",
        )


def _judge(claim: RecordClaim, row: RecordRow) -> ClaimResult:
    if row.answer is not None:
        return ClaimResult(claim, ClaimOutcome.ACCEPTED, row)
    if row.owner == claim.job_key:
        return ClaimResult(claim, ClaimOutcome.MINE)
    return ClaimResult(claim, ClaimOutcome.FOREIGN, row)


def _fresh(claim: RecordClaim) -> RecordRow:
    return RecordRow(claim.record_key, claim.job_key, claim.attempt, reason=claim.reason)


def _statement(text: str, *parameters: Item) -> Item:
    return {"Statement": text, "Parameters": list(parameters), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def _stored(answer: AcceptedAnswer) -> Item:
    return {
        "M": {
            "job_key": {"S": answer.job_key},
            "attempt": {"N": str(answer.attempt)},
            "uri": {"S": answer.uri},
            "offset": {"N": str(answer.offset)},
            "length": {"N": str(answer.length)},
            "sha256": {"S": answer.sha256},
        }
    }


def _row(record_key: str, item: Mapping[str, Any]) -> RecordRow:
    answer = None
    if "answer" in item:
        stored = item["answer"]["M"]
        answer = AcceptedAnswer(
            record_key=record_key,
            job_key=stored["job_key"]["S"],
            attempt=int(stored["attempt"]["N"]),
            uri=stored["uri"]["S"],
            offset=int(stored["offset"]["N"]),
            length=int(stored["length"]["N"]),
            sha256=stored["sha256"]["S"],
        )
    reason = item["reason"]["S"] if "reason" in item else ""
    return RecordRow(record_key, item["owner"]["S"], int(item["attempt"]["N"]), answer, reason)


def _chunks(things: Iterable[_T], size: int) -> Iterable[list[_T]]:
    iterator = iter(things)
    return iter(lambda: list(islice(iterator, size)), [])

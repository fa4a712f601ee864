"""`tallybatch explain`: one record's whole story."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from tallybatch.cli import output
from tallybatch.cli.finding import find_job
from tallybatch.cli.options import AsJson, EndpointUrl, JobRef, StackName, connected
from tallybatch.cli.view import iso
from tallybatch.steps import explain_record


def explain(
    ctx: typer.Context,
    job: JobRef,
    record: Annotated[str, typer.Argument(metavar="RECORD", help="A business key, or a record_id.")],
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Tell one record's whole story: its input, every attempt with the provider's job, request and raw bytes, why an
    answer was taken or not, what people decided, and where it is published. Prints its answers.

    Example: `tallybatch explain 1f3a9c film-007`
    """
    connection = connected(ctx, stack, endpoint_url)
    ports = explain_record.Ports(connection.objects, connection.ledger)
    story = explain_record.run(find_job(connection, job), record, ports)
    output.answer(story, as_json=as_json, human=_page(story))


def _page(story: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [
        output.facts(
            [
                ("record", story["business_key"]),
                ("record_id", story["record_id"]),
                ("record_key", story["record_key"]),
                ("job", f"{story['job_key']} ({story['state']})"),
                ("input", f"sha256 {story['input_sha256']}, source version {story['source_version']}"),
                ("shard", story["shard"]["uri"]),
                ("stands", story["stands"]),
            ]
        )
    ]
    for told in story["attempts"]:
        parts.append(output.table((f"\nattempt {told['attempt']}",), []))
        parts.append(output.facts([(name, value) for name, value in _attempt(told) if value]))
    ledger, published = story["ledger"], story["published"]
    last: list[tuple[str, Any]] = [
        (
            "ledger",
            f"accepted in {ledger['accepted_in']}" if ledger["accepted_in"] else f"owner {ledger['owner'] or '-'}",
        ),
        ("published", f"{published['part']}{' (a part)' if published['partial'] else ''}" if published else "no"),
    ]
    parts.append(output.table(("\nnow",), []))
    parts.append(output.facts(last))
    return Group(*parts)


def _attempt(told: dict[str, Any]) -> list[tuple[str, Any]]:
    submission = told["submission"]
    decision = told.get("decision")
    raw, tokens = told.get("raw"), told.get("tokens") or {}
    handed = "never handed over"
    if submission is not None:
        handed = f"{submission['state']}, {submission['submission_key'][:12]}"
    return [
        ("shard", told["shard_id"]),
        ("submission", handed),
        ("provider job", told.get("provider_job_id") or (submission or {}).get("provider_job_id")),
        ("request", told.get("provider_request_id")),
        ("outcome", told["outcome"] or "not reconciled yet"),
        ("follows", told.get("follows")),
        ("reason", ": ".join(part for part in (told.get("code"), told.get("reason")) if part)),
        ("notes", ", ".join(told.get("notes") or ())),
        ("model", told.get("model_version")),
        ("finish", told.get("finish_reason")),
        ("tokens", ", ".join(f"{count} {kind}" for kind, count in tokens.items() if count)),
        ("cost", f"{told['cost_usd']} USD ({told['price']})" if told.get("cost_usd") and told.get("price") else ""),
        ("raw", f"{raw['uri']} at byte {raw['offset']}, {raw['length']} bytes" if raw else ""),
        ("reused from", told.get("reused_from")),
        ("decision", f"{decision['decision']} by {decision['by']} at {iso(decision['at'])}" if decision else ""),
        ("output", json.dumps(told["output"]) if told.get("output") is not None else ""),
    ]

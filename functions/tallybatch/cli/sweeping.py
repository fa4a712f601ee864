"""`tallybatch sweep`: what the providers have that the ledger does not know, now instead of at the next hourly run."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from tallybatch.cli import output
from tallybatch.cli.options import AsJson, EndpointUrl, StackName, connected
from tallybatch.cli.stack import SWEEP
from tallybatch.cli.view import iso
from tallybatch.contracts import Orphan, SweepReply, SweepRequest

_SHORT_KEY = 12


def sweep(
    ctx: typer.Context,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel orphans and duplicates that still run.")] = False,
    lookback_hours: Annotated[
        int, typer.Option("--lookback-hours", min=1, max=8760, help="How far back to look.")
    ] = SweepRequest().lookback_hours,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """List each provider's jobs that carry our marker and report those that the ledger does not know or has superseded.
    Adopt those that a submission waits for, and restart jobs that nobody works on.

    Example: `tallybatch sweep --json`
    """
    connection = connected(ctx, stack, endpoint_url)
    output.note(f"to {connection.place}")
    request = SweepRequest(cancel=cancel, lookback_hours=lookback_hours)
    reply = SweepReply.model_validate(connection.invoke(SWEEP, request.model_dump()))
    output.answer(reply.model_dump(), as_json=as_json, human=_page(reply))


def _page(reply: SweepReply) -> Group:
    facts: list[tuple[str, Any]] = [
        ("provider jobs", f"{reply.checked} with our marker, {reply.known} as the ledger has them"),
        ("orphans", len(reply.orphans)),
        *(("adopted", job_id) for job_id in reply.adopted),
        *(("cancelled", job_id) for job_id in reply.cancelled),
        *(("restarted", name) for name in reply.restarted),
        *(("stale", place) for place in reply.stale),
        *(("released", hold) for hold in reply.released),
        *([("deleted", f"{reply.deleted_files} files of completed jobs")] if reply.deleted_files else []),
        *(("not seen", f"{gap.provider}: {gap.why}") for gap in reply.gaps),
    ]
    parts: list[RenderableType] = [output.facts(facts)]
    if reply.orphans:
        columns = ("provider", "provider job", "state", "created", "job", "tokens", "cost", "why")
        parts.append(output.table(columns, [_row(orphan) for orphan in reply.orphans], title="\norphans"))
    return Group(*parts)


def _row(orphan: Orphan) -> tuple[Any, ...]:
    tokens = orphan.tokens
    return (
        orphan.provider,
        orphan.provider_job_id,
        orphan.state,
        iso(orphan.created_at) if orphan.created_at else None,
        orphan.job_key[:_SHORT_KEY],
        tokens["input"] + tokens["output"] if tokens else None,
        orphan.cost_usd or "unpriced",
        orphan.why,
    )

"""`tallybatch backfill run`: start jobs for objects that no earlier run has taken, now instead of on a schedule."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from tallybatch.cli import output
from tallybatch.cli.options import AsJson, EndpointUrl, StackName, Tenant, connected
from tallybatch.cli.specs import pushed_spec, require_name
from tallybatch.cli.stack import DISCOVER_BACKFILL
from tallybatch.contracts import BackfillReply, BackfillRequest
from tallybatch.domain.errors import BadInput, Problem

app = typer.Typer(
    no_args_is_help=True,
    help="Jobs for objects that lie somewhere already.\n\n"
    "Example: `tallybatch backfill run --spec film-genre --prefix exports/{yyyy}/{mm}/{dd}/`",
)


@app.callback()
def _group() -> None:
    """Keeps `run` a command of its own while it is the only one."""


@app.command()
def run(
    ctx: typer.Context,
    spec: Annotated[str, typer.Option("--spec", metavar="NAME", help="A pushed spec's name.")],
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="PREFIX", help="Begin of the objects' keys; may hold {yyyy}, {mm} and {dd}."),
    ],
    tenant: Tenant = "default",
    source_bucket: Annotated[
        str, typer.Option(metavar="BUCKET", show_default="the pipeline's own", help="Where the objects are.")
    ] = "",
    dataset_version: Annotated[
        str, typer.Option(metavar="VERSION", help="Of the jobs; with the same placeholders.")
    ] = "{yyyy}-{mm}-{dd}",
    max_objects: Annotated[int, typer.Option(min=1, max=10_000, help="Start this many jobs at most.")] = 100,
    days_back: Annotated[int, typer.Option(min=0, max=366, help="Look at so many days before, too.")] = 0,
    time: Annotated[
        str, typer.Option("--time", metavar="ISO", show_default="now", help="The date for the placeholders.")
    ] = "",
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Start one job per object version that no earlier run has taken. A second run does nothing.

    Example: `tallybatch backfill run --spec film-genre --prefix "exports/{yyyy}/{mm}/{dd}/" --days-back 7`
    """
    request = _request(
        tenant=tenant,
        spec=spec,
        prefix=prefix,
        source_bucket=source_bucket,
        dataset_version=dataset_version,
        max_objects=max_objects,
        days_back=days_back,
        time=time,
    )
    require_name(tenant, "--tenant")
    require_name(spec, "--spec")
    connection = connected(ctx, stack, endpoint_url)
    output.note(f"to {connection.place}")
    pushed_spec(connection.objects, tenant, spec)
    reply = BackfillReply.model_validate(connection.invoke(DISCOVER_BACKFILL, request.model_dump()))
    human = output.facts(
        [
            ("looked at", ", ".join(reply.prefixes)),
            ("started", len(reply.started)),
            ("seen before", reply.seen),
            ("left for the next run", reply.over_ceiling),
            *(("", key) for key in reply.started),
        ]
    )
    output.answer(reply.model_dump(), as_json=as_json, human=human)


def _request(**values: object) -> BackfillRequest:
    try:
        return BackfillRequest.model_validate(values)
    except ValidationError as error:
        problems = [Problem(one["msg"], key=".".join(map(str, one["loc"]))) for one in error.errors()]
        raise BadInput("the backfill cannot run so", problems) from None

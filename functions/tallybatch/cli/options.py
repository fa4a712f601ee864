"""Options that several commands share, and the way from them to a connection."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Annotated, cast

import typer

from tallybatch.cli.stack import Connection, Connector, Target, connect
from tallybatch.contracts import LONGEST_NAME
from tallybatch.domain.units import parse_duration

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress and log go to stderr.")]
StackName = Annotated[
    str,
    typer.Option(
        "--stack",
        envvar="TALLYBATCH_STACK",
        metavar="NAME",
        show_default=False,
        help="CloudFormation stack in the AWS account of the environment (AWS_PROFILE, AWS_REGION, …). Without it: the "
        "local stack if one is up, else the stack Tallybatch on AWS.",
    ),
]
EndpointUrl = Annotated[
    str,
    typer.Option(
        "--endpoint-url",
        envvar="AWS_ENDPOINT_URL",
        metavar="URL",
        show_default=False,
        help="Where the AWS APIs are, e.g. an emulator.",
    ),
]
JobRef = Annotated[str, typer.Argument(metavar="JOB", help="A job_key, or a unique prefix of one.")]
Since = Annotated[
    str, typer.Option("--since", metavar="WHEN", help="Created since: 90m, 24h, 7d, or 2026-01-31[T12:00].")
]
Follow = Annotated[bool, typer.Option("--follow", help="Stay until the job ends, as `follow` does.")]
By = Annotated[
    str,
    typer.Option(
        "--by", metavar="NAME", show_default=False, help="Who asks or decides. Default: the user's name here."
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Whose data and specs these are.")]


def connected(ctx: typer.Context, stack: str, endpoint_url: str) -> Connection:
    """Whoever runs the app may put a connector of its own into the context's `obj`."""
    connector = cast("Connector | None", ctx.find_root().obj) or connect
    return connector(Target(stack, endpoint_url))


def person(by: str) -> str:
    """Who is on record; the name of the user of this machine where none is given."""
    name = by.strip() or getpass.getuser()
    if len(name) > LONGEST_NAME:
        raise typer.BadParameter(f"a name has at most {LONGEST_NAME} characters; this one has {len(name)}")
    return name


def moment_of(text: str) -> float:
    """Unix seconds of an ISO date, or of so long ago. 0 for ""."""
    if not text:
        return 0
    try:
        return datetime.now(UTC).timestamp() - parse_duration(text).total_seconds()
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a duration (24h) nor a date (2026-01-31)", param_hint="--since"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

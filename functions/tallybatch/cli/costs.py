"""`tallybatch cost`: where the money went, beside what was forecast."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from tallybatch.cli import output
from tallybatch.cli.finding import find_job
from tallybatch.cli.options import AsJson, EndpointUrl, Since, StackName, connected, moment_of
from tallybatch.cli.stack import Connection
from tallybatch.domain.billing import LINES
from tallybatch.domain.cost_report import COUNTS, DIMENSIONS, HUMAN, Fact, facts_of, grouped, human_nano_usd
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.prices import usd
from tallybatch.domain.rows import Job
from tallybatch.domain.units import parse_usd

_MONEY = ("cost_usd", "waste_usd", "cost_per_accepted_usd", "unpriced", "aws_cost_usd")


class _Forecast(msgspec.Struct):
    """Of plan.json; decoding skips the rest."""

    cost_low_usd: str | None = None
    cost_high_usd: str | None = None


def cost(
    ctx: typer.Context,
    by: Annotated[
        str, typer.Option("--by", metavar="KEYS", help=f"Some of {', '.join(DIMENSIONS)}, with commas between.")
    ] = "tenant,spec,model",
    tenant: Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Only this tenant's.")] = "",
    since: Since = "",
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="Only this one: a job_key or a prefix of it.")] = "",
    human_usd: Annotated[
        str, typer.Option("--human-usd", metavar="USD", help="What it costs that a person looks at one record.")
    ] = "0",
    as_csv: Annotated[bool, typer.Option("--csv", help="The rows as CSV on stdout.")] = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """The money, exact to the nano-dollar: cost, waste and what it was for, per accepted record, and the forecast.

    Example: `tallybatch cost --by spec,class --since 7d`
    """
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json are two forms of one answer: take one", param_hint="--csv")
    keys = _dimensions(by)
    human = human_nano_usd(_dollars(human_usd))
    if as_csv and as_json:
        raise typer.BadParameter("take one of --csv and --json", param_hint="--csv")
    if job and (tenant or since):
        raise typer.BadParameter("one job has no other; leave --tenant and --since out", param_hint="--job")
    connection = connected(ctx, stack, endpoint_url)
    begin = moment_of(since)
    jobs = [find_job(connection, job)] if job else list(connection.ledger.jobs(tenant=tenant, since=begin))
    rows, total = grouped(_facts(jobs, connection, human), keys)
    if as_csv:
        _write_csv(rows, keys)
        return
    document = {
        "since": begin or None,
        "jobs": len(jobs),
        "by": list(keys),
        "rows": rows,
        "total": total,
        "forecast": _forecast(jobs, connection),
    }
    output.answer(document, as_json=as_json, human=_tables(document, keys))


def _dimensions(by: str) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(part.strip() for part in by.split(",") if part.strip()))
    wrong = [key for key in keys if key not in DIMENSIONS]
    if wrong or not keys:
        raise typer.BadParameter(f"{by!r}: take some of {', '.join(DIMENSIONS)}", param_hint="--by")
    return keys


def _dollars(text: str) -> Decimal:
    try:
        dollars = parse_usd(text)
        if dollars < 0:
            raise ValueError("what people cost is 0 or more")
        return dollars
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--human-usd") from None


def _facts(jobs: Sequence[Job], connection: Connection, human: int) -> Iterator[Fact]:
    for job in jobs:
        yield from facts_of(job, connection.ledger.submissions(job.job_key), human_nano_usd=human)


def _forecast(jobs: Sequence[Job], connection: Connection) -> dict[str, Any]:
    """Of the jobs that have a plan; null where one of these has no worst case or no price."""
    decode = msgspec.json.Decoder(_Forecast).decode
    plans = []
    for job in jobs:
        try:
            plans.append(decode(connection.objects.get(JobKeys(job.tenant, job.job_key).plan)))
        except NotFound:
            continue
    return {
        "jobs": len(plans),
        "cost_low_usd": _sum([plan.cost_low_usd for plan in plans]),
        "cost_high_usd": _sum([plan.cost_high_usd for plan in plans]),
    }


def _sum(dollars: list[str | None]) -> str | None:
    if None in dollars:
        return None
    return usd(sum(int(Decimal(each).scaleb(9)) for each in dollars if each is not None))


def _write_csv(rows: list[dict[str, Any]], keys: Sequence[str]) -> None:
    """With the same header whether there are rows or not."""
    first, lines = (*keys, *_MONEY), (*LINES, HUMAN)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*first, *COUNTS, *(f"{name}_usd" for name in lines)])
    for row in rows:
        counts, spent = row["records"], row["lines"]
        writer.writerow(
            [*(row[key] for key in first), *(counts[name] for name in COUNTS), *(spent[name] for name in lines)]
        )


def _tables(document: dict[str, Any], keys: Sequence[str]) -> Group:
    columns = (*keys, *(name.replace("_", " ") for name in (*COUNTS, *_MONEY)))
    rows = [
        (*(row[key] or "-" for key in keys), *row["records"].values(), *(row[name] for name in _MONEY))
        for row in document["rows"]
    ]
    total, forecast = document["total"], document["forecast"]
    lines = [(name.replace("_", " "), value) for name, value in total["lines"].items() if value != "0"]
    about = [
        ("jobs", document["jobs"]),
        ("cost", total["cost_usd"] or f"unknown: {total['unpriced']} executions have no price"),
        ("of which waste", total["waste_usd"]),
        ("per accepted record", total["cost_per_accepted_usd"]),
        *lines,
        ("AWS itself, estimated", total["aws_cost_usd"]),
        ("forecast", f"{forecast['cost_low_usd'] or 'unknown'} to {forecast['cost_high_usd'] or 'unknown'}"),
    ]
    return Group(output.table(columns, rows), Text(""), output.facts(about))

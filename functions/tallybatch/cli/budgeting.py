"""`tallybatch budget`: what tenants may spend in a month, what is set aside of it, and what is spent."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from tallybatch.cli import output
from tallybatch.cli.options import AsJson, EndpointUrl, StackName, Tenant, connected
from tallybatch.cli.specs import require_name
from tallybatch.domain import budgets
from tallybatch.domain.budgets import EACH, Budget
from tallybatch.domain.errors import LedgerBusy
from tallybatch.domain.prices import nano_usd, usd
from tallybatch.domain.units import parse_usd
from tallybatch.ports import Ledger

app = typer.Typer(
    no_args_is_help=True,
    help="What a tenant may spend in a month: a job's worst case is set aside before its first call.\n\nExample: "
    "`tallybatch budget show --tenant acme`",
)
Month = Annotated[str, typer.Option("--month", metavar="YYYY-MM", help="One month, UTC.")]
_TRIES = 20


@app.command("show")
def show(
    ctx: typer.Context,
    tenant: Tenant = "default",
    month: Month = "",
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """A tenant's month: limit, spent, set aside, left, and the part of each job. Without --month: this one.

    Example: `tallybatch budget show --tenant acme --month 2026-11`
    """
    require_name(tenant, "--tenant")
    connection = connected(ctx, stack, endpoint_url)
    period = _month(month) or budgets.period_of(connection.clock.now())
    told = _document(connection.ledger, tenant, period)
    rows = [(job["job_key"][:12], job["worst_usd"], job["reserved_usd"], job["spent_usd"]) for job in told["jobs"]]
    if as_json:
        output.answer(told, as_json=True)
        return
    output.show(output.facts([(name.replace("_", " "), value) for name, value in told.items() if name != "jobs"]))
    if rows:
        output.show(output.table(("job", "worst case", "set aside", "spent"), rows, title="\njobs"))


@app.command("set")
def set_(
    ctx: typer.Context,
    amount: Annotated[str, typer.Option("--usd", metavar="USD", help="Dollars a month, or none.")],
    tenant: Tenant = "default",
    month: Month = "",
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Set what a tenant may spend in each month, or with --month in that one. Jobs that have begun keep their part; one
    that was stopped for want of money goes on with `resume`.

    Example: `tallybatch budget set --tenant acme --usd 500`
    """
    require_name(tenant, "--tenant")
    period, limit = _month(month) or EACH, _limit(amount)
    connection = connected(ctx, stack, endpoint_url)
    for _ in range(_TRIES):
        budget = connection.ledger.budget(tenant, period)
        changed = replace(budget, limit=limit, set_by=connection.who(), updated_at=connection.clock.now())
        if connection.ledger.move_budget(changed):
            document = {"tenant": tenant, "period": period, "limit_usd": usd(limit), "was_usd": usd(budget.limit)}
            output.answer(document, as_json=as_json, human=output.facts(list(document.items())))
            return
    raise LedgerBusy("the budget changed under every try", where=f"tenant {tenant}", do="set it again")


def _document(ledger: Ledger, tenant: str, period: str) -> dict[str, Any]:
    budget = ledger.budget(tenant, period)
    limit = budget.limit if budget.limit is not None else ledger.budget(tenant, EACH).limit
    return {
        "tenant": tenant,
        "period": period,
        "limit_usd": usd(limit),
        "spent_usd": usd(budget.spent),
        "reserved_usd": usd(budget.reserved),
        "left_usd": _left(budget, limit),
        "jobs": [
            {
                "job_key": hold.job_key,
                "worst_usd": usd(hold.worst),
                "reserved_usd": usd(hold.reserved),
                "spent_usd": usd(hold.spent),
                "ended": hold.closed,
            }
            for hold in ledger.budget_holds(tenant, period)
        ],
    }


def _left(budget: Budget, limit: int | None) -> str | None:
    return None if limit is None else usd(budgets.left(budget, limit))


def _month(text: str) -> str:
    if text and not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", text):
        raise typer.BadParameter(f"{text!r} is no month such as 2026-11", param_hint="--month")
    return text


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    try:
        dollars = parse_usd(text)
        if dollars < 0:
            raise ValueError("a budget is 0 or more")
        return nano_usd(dollars)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--usd") from None

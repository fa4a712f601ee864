"""`tallybatch quota`: what the providers' quotas are, who has and who waits for what, and how they are set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Group, RenderableType

from tallybatch.cli import output
from tallybatch.cli.options import AsJson, By, EndpointUrl, StackName, connected, person
from tallybatch.cli.view import iso
from tallybatch.domain import quotas
from tallybatch.domain.errors import BadInput, LedgerBusy
from tallybatch.domain.layout import NAME
from tallybatch.domain.quota_rows import DIMENSIONS, Hold, QuotaChange, QuotaPool
from tallybatch.domain.quotas import ADMISSION, ALL, EACH, UNLIMITED
from tallybatch.ports import Ledger, QuotaMove

app = typer.Typer(
    no_args_is_help=True,
    help="The providers' quotas: shared by all jobs, reserved before each submit.\n\nExample: `tallybatch quota show`",
)

_TRIES = 20
_MOST = 10**15
"""No provider has more; the sums of such numbers fit into the 38 digits of the ledger's."""
_LEAST_SHARE = 0.001
_NONE = "none"
_SETTINGS = ("limits", "headroom", "shares")


@app.command("show")
def show(
    ctx: typer.Context,
    pool: Annotated[str, typer.Argument(metavar="[POOL]", help=f"{', '.join(quotas.DEFAULTS)}; all without it.")] = "",
    history: Annotated[bool, typer.Option("--history", help="With every change, and who made it.")] = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show each pool's limits, what is taken of them, by whom, and who waits.

    Example: `tallybatch quota show openai --history`
    """
    connection = connected(ctx, stack, endpoint_url)
    ledger, now = connection.ledger, connection.clock.now()
    names = [_known(pool)] if pool else list(quotas.DEFAULTS)
    shown = [_document(*ledger.quota_line(name), ledger, now, history=history) for name in names]
    output.answer(shown, as_json=as_json, human=Group(*(_page(each) for each in shown)))


@app.command("set")
def set_(
    ctx: typer.Context,
    pool: Annotated[str, typer.Argument(metavar="POOL", help=", ".join(quotas.DEFAULTS))],
    model: Annotated[
        str,
        typer.Argument(metavar="[MODEL]", help=f"An exact model; `{EACH}` has none of its own; `{ALL}` is their sum."),
    ] = "",
    tokens: Annotated[str, typer.Option("--tokens", metavar="N", help="Enqueued prompt tokens, or none.")] = "",
    jobs: Annotated[str, typer.Option("--jobs", metavar="N", help="Provider jobs at once, or none.")] = "",
    requests: Annotated[
        str, typer.Option("--requests", metavar="N", help="Requests in provider jobs at once, or none.")
    ] = "",
    headroom: Annotated[
        float | None, typer.Option("--headroom", min=0, max=0.95, help="Share kept free for other traffic.")
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="TENANT=SHARE", help="A tenant's share while others wait, or TENANT=none."),
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Forget what is set for this model.")] = False,
    by: By = "",
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Set limits, headroom or shares of a pool. What runs goes on; what comes next keeps to them.

    Example: `tallybatch quota set openai gpt-5-mini-2025-08-07 --tokens 5000000`
    """
    name = _known(pool)
    connection = connected(ctx, stack, endpoint_url)
    given = dict(zip(DIMENSIONS, (tokens, jobs, requests), strict=True))
    wanted = {name: _limit(text, name) for name, text in given.items() if text}
    scope = model or (ALL if pool == ADMISSION else "")
    if pool == ADMISSION and (wanted.keys() - {"jobs"} or scope != ALL):
        raise typer.BadParameter(f"{ADMISSION} counts jobs of all models: take --jobs, and no MODEL", param_hint="POOL")
    if (wanted or default) and not scope:
        raise typer.BadParameter(f"name a model, `{EACH}` or `{ALL}`", param_hint="MODEL")
    if not wanted and headroom is None and not share and not default:
        raise typer.BadParameter("nothing to set; see --tokens, --jobs, --requests, --headroom, --share, --default")
    shares = dict(_share(text) for text in share or ())

    def changed(now: QuotaPool) -> QuotaPool:
        limits = {**now.limits}
        if default:
            limits.pop(scope, None)
        if wanted:
            limits[scope] = {**limits.get(scope, {}), **wanted}
        kept = {**now.shares, **shares}
        return replace(
            now,
            limits=limits,
            headroom=now.headroom if headroom is None else headroom,
            shares={tenant: part for tenant, part in kept.items() if part is not None},
        )

    change = _write(name, changed, person(by), connection.ledger, connection.clock.now())
    output.answer(msgspec.to_builtins(change), as_json=as_json, human=_change_page(change))


def _write(name: str, changed: Callable[[QuotaPool], QuotaPool], by: str, ledger: Ledger, now: float) -> QuotaChange:
    """The pool and the audit of it in one transaction."""
    for _ in range(_TRIES):
        before = ledger.quota_pool(name)
        after = replace(changed(before), updated_at=now)
        if sum(after.shares.values()) > 1:
            raise BadInput("the shares of the tenants are more than the whole", where=f"quota {name}")
        change = QuotaChange(pool=name, at=now, by=by, before=_settings(before), after=_settings(after))
        if ledger.move_quota(after, QuotaMove(note=change)):
            return change
    raise LedgerBusy("the quota pool's row changed under every try", where=name)


def _settings(pool: QuotaPool) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(pool)
    return {name: told[name] for name in _SETTINGS if name in told}


def _known(pool: str) -> str:
    if pool not in quotas.DEFAULTS:
        raise typer.BadParameter(f"there is no pool {pool!r}; there are {', '.join(quotas.DEFAULTS)}")
    return pool


def _limit(text: str, name: str) -> int:
    if text == _NONE:
        return UNLIMITED
    number = text.replace("_", "").replace(",", "")
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither a number nor `{_NONE}`", param_hint=f"--{name}")
    if len(number) > len(str(_MOST)) or int(number) > _MOST:
        raise typer.BadParameter(f"at most {_MOST:,}; `{_NONE}` is no limit", param_hint=f"--{name}")
    return int(number)


def _share(text: str) -> tuple[str, float | None]:
    tenant, _, part = text.partition("=")
    try:
        share = None if part == _NONE else float(part)
    except ValueError:
        share = -1
    if not NAME.fullmatch(tenant) or (share is not None and not _LEAST_SHARE <= share <= 1):
        reason = f"{text!r} is not TENANT=SHARE with a share from {_LEAST_SHARE} to 1"
        raise typer.BadParameter(reason, param_hint="--share")
    return tenant, share


def _document(pool: QuotaPool, line: Sequence[Hold], ledger: Ledger, now: float, *, history: bool) -> dict[str, Any]:
    """One pool of `quota show --json`; a limit that is null is none."""
    models = sorted({*pool.used, *pool.slow, *(hold.model for hold in line), *(set(pool.limits) - {ALL, EACH})})
    waiting = Counter((hold.model, hold.tenant) for hold in line)
    told: dict[str, Any] = {
        "pool": pool.name,
        "headroom": pool.headroom,
        "shares": dict(pool.shares),
        "limits": {scope: _limits(quotas.limits_of(pool, scope)) for scope in (ALL, EACH, *models)},
        "in_force": {scope: _limits(quotas.effective(pool, scope, now)) for scope in (ALL, *models)},
        "used": msgspec.to_builtins(pool.used),
        "waiting": [
            {"model": model, "tenant": tenant, "shards": count} for (model, tenant), count in sorted(waiting.items())
        ],
        "oldest_wait_s": round(now - min(hold.asked_at for hold in line)) if line else None,
        "slowed": {model: iso(slow.at) for model, slow in pool.slow.items()},
    }
    if history:
        told["changes"] = [msgspec.to_builtins(change) for change in ledger.quota_changes(pool.name)]
    return told


def _limits(limits: dict[str, int]) -> dict[str, int | None]:
    return {name: limits.get(name) for name in DIMENSIONS}


def _page(told: dict[str, Any]) -> RenderableType:
    rows: list[tuple[Any, ...]] = []
    for scope, limits in told["limits"].items():
        tenants = [tenant for model, held in told["used"].items() if scope in (ALL, model) for tenant in held.values()]
        out = [sum(held.get(name, 0) for held in tenants) for name in DIMENSIONS]
        waits = sum(each["shards"] for each in told["waiting"] if scope in (ALL, each["model"]))
        in_force = told["in_force"].get(scope, limits)
        cells = [_cell(used, limits[name], in_force[name]) for used, name in zip(out, DIMENSIONS, strict=True)]
        rows.append((scope, *(cells if scope != EACH else [_words(limits[name]) for name in DIMENSIONS]), waits))
    about: list[tuple[str, Any]] = [
        ("headroom", told["headroom"] or None),
        ("shares", ", ".join(f"{tenant} {share:g}" for tenant, share in told["shares"].items())),
        ("slowed", ", ".join(f"{model} at {at}" for model, at in told["slowed"].items())),
        ("oldest wait", f"{told['oldest_wait_s']} s" if told["oldest_wait_s"] is not None else ""),
    ]
    facts = [(name, value) for name, value in about if value]
    parts: list[RenderableType] = [
        output.table(("model", *DIMENSIONS, "waiting"), rows, title=f"\n{told['pool']}"),
        *([output.facts(facts)] if facts else []),
    ]
    if told.get("changes"):
        changes = [(iso(each["at"]), each["by"], _settings_told(each.get("after", {}))) for each in told["changes"]]
        parts.append(output.table(("changed", "by", "to"), changes))
    return Group(*parts)


def _cell(used: int, limit: int | None, in_force: int | None) -> str:
    slowed = f" (now {_words(in_force)})" if in_force != limit else ""
    return f"{used:,} of {_words(limit)}{slowed}"


def _words(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit:,}"


def _settings_told(settings: Mapping[str, Any]) -> str:
    """Only what somebody has set: `gpt-5: 5,000,000 tokens, no limit of jobs; headroom 0.2`."""
    told = []
    for scope, limits in settings.get("limits", {}).items():
        each = [f"no limit of {name}" if n == UNLIMITED else f"{n:,} {name}" for name, n in limits.items()]
        told.append(f"{scope}: {', '.join(each)}")
    if headroom := settings.get("headroom"):
        told.append(f"headroom {headroom:g}")
    told += [f"{tenant} has a share of {share:g}" for tenant, share in settings.get("shares", {}).items()]
    return "; ".join(told) or "the defaults"


def _change_page(change: QuotaChange) -> RenderableType:
    return output.facts(
        [
            ("pool", change.pool),
            ("by", change.by),
            ("before", _settings_told(change.before)),
            ("now", _settings_told(change.after)),
        ]
    )

"""`tallybatch plan`: what a file would take under a spec, from this machine alone; `prices`: what it reckons with."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer

from tallybatch.cli import output
from tallybatch.cli.dropping import inbox_key, require_records
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.files import read_file
from tallybatch.cli.options import AsJson, Tenant
from tallybatch.cli.predicting import prepared_file
from tallybatch.cli.specs import CheckedSpec, load_spec, require_name
from tallybatch.domain.canary import canary_size
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import parse_inbox_key
from tallybatch.domain.manifest import SourceSnapshot, describe
from tallybatch.domain.plan import JobPlan, plan_of
from tallybatch.domain.preparation import Preparation, Quarantine
from tallybatch.domain.price_book import PriceBook
from tallybatch.domain.price_file import PriceFile, parse_prices
from tallybatch.domain.prices import TOKENS_PER_RATE, Price
from tallybatch.domain.spec import MIN_RECORDS, Provider, Spec
from tallybatch.domain.units import format_usd
from tallybatch.steps.job_prices import job_prices, over_budget, unpriced
from tallybatch.steps.rendering import Requests
from tallybatch.wiring import formats

PricesFile = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Prices of your own, in the form of prices/prices.yaml."),
]
_SHOWN_BAD_LINES = 20


def plan(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Records, one JSON object a line: .jsonl or .jsonl.gz.")],
    spec: Annotated[Path, typer.Option("--spec", metavar="FILE", help="The spec's YAML file.")],
    tenant: Tenant = "default",
    prices: PricesFile = None,
    as_json: AsJson = False,
) -> None:
    """What a file would take under a spec: bad lines, shards, tokens, cost low and high, time. Needs no AWS and no
    network, and spends nothing. Exit code 3 if the file would be refused.

    Example: `tallybatch plan films.jsonl --spec film-genre.yaml`
    """
    require_records(file)
    require_name(tenant, "--tenant")
    found = load_spec(spec)
    book = PriceBook([_user_prices(prices)] if prices else [])
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        told = _told(file, found, tenant, book, Path(folder))
    output.answer(told, as_json=as_json, human=output.facts(_facts(told)))
    if told["refused"]:
        for reason in told["refused"]:
            output.note(reason)
        raise typer.Exit(ExitCode.REFUSED_INPUT)


def prices(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="openai, bedrock or gemini.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An exact model version.")],
    file: PricesFile = None,
    as_json: AsJson = False,
) -> None:
    """The price of a model in both classes, with its date and source; with --prices, checks a file of yours first.
    In it, each row has provider, model, class (batch or on_demand), as_of, source, input and output, and may have
    cached_input, cache_write and rows `above` so many input_tokens: US dollars for a million tokens.

    Example: `tallybatch prices openai gpt-5-mini-2025-08-07`
    """
    if provider not in get_args(Provider):
        raise typer.BadParameter(f"{provider!r}: take one of {', '.join(get_args(Provider))}", param_hint="PROVIDER")
    book = PriceBook([_user_prices(file)] if file else [])
    found = [book.price(provider, model, lane, at=time.time()) for lane in ("batch", "on_demand")]
    rows = [row for price in found if price is not None for row in _price_rows(price)]
    if not rows:
        raise NotFound(
            f"no price is known for {provider} {model}",
            do="check the exact model version, or write its price into prices/prices.yaml in the bucket",
        )
    columns = ("class", "above", "input", "cached input", "cache write", "output", "as of", "derived", "source")
    table = output.table(columns, [tuple(row.values()) for row in rows])
    output.answer({"provider": provider, "model": model, "prices": rows}, as_json=as_json, human=table)


def _user_prices(file: Path) -> PriceFile:
    return parse_prices(read_file(file), file=str(file))


def _price_rows(price: Price) -> list[dict[str, Any]]:
    def dollars(pico: int | None) -> str | None:
        return None if pico is None else format_usd(Decimal(pico) / TOKENS_PER_RATE)

    return [
        {
            "class": price.lane,
            "above": tier.above,
            "input": dollars(tier.input),
            "cached_input": dollars(tier.cached_input),
            "cache_write": dollars(tier.cache_write),
            "output": dollars(tier.output),
            "as_of": price.as_of,
            "derived": price.derived,
            "source": price.source,
        }
        for tier in price.tiers
    ]


def _told(file: Path, found: CheckedSpec, tenant: str, book: PriceBook, folder: Path) -> dict[str, Any]:
    spec = found.spec
    first = prepared_file(file, spec, tenant, folder, keep_bad=True)
    good = first
    if first.bad_count and not first.unusable:
        second = folder / "good"
        second.mkdir()
        with closing(Quarantine(first, second)) as quarantine:
            good = prepared_file(file, spec, tenant, second, quarantine)
    forecast = _plan(file, found, tenant, good, book) if good.records else None
    return {
        "file": str(file),
        "spec": spec.name,
        "refused": _refusals(spec, first, good, forecast, book),
        "bad_lines": {
            "count": first.bad_count,
            "by_code": first.bad_by_code,
            "first": [
                {"line": each.line, "code": each.code, "reason": each.reason}
                for each in first.problems[:_SHOWN_BAD_LINES]
            ],
        },
        "plan": None if forecast is None else msgspec.to_builtins(forecast),
    }


def _refusals(
    spec: Spec, first: Preparation, good: Preparation, forecast: JobPlan | None, book: PriceBook
) -> list[str]:
    """Every reason for which the pipeline would refuse the file."""
    reasons = []
    if first.bad_count and (spec.input.on_bad_line == "reject" or first.unusable or not good.records):
        lines = "a bad line" if first.bad_count == 1 else f"{first.bad_count:,} bad lines; first"
        reasons.append(f"the file has {lines}: {first.problems[0]}")
    least = MIN_RECORDS.get(spec.provider, 1)
    if 0 < good.records < least and "on_demand" not in (spec.lane, spec.retry.small_set):
        reasons.append(f"{spec.provider} takes jobs of at least {least} records; this file has {good.records}")
    reasons += [str(problem) for problem in unpriced(spec, job_prices(spec, book, at=time.time()))]
    if forecast is not None and (problem := over_budget(spec, forecast)) is not None:
        reasons.append(str(problem))
    return reasons


def _plan(file: Path, found: CheckedSpec, tenant: str, good: Preparation, book: PriceBook) -> JobPlan:
    spec, now = found.spec, time.time()
    place = parse_inbox_key(inbox_key(tenant, spec.name, datetime.now(UTC).strftime("%Y-%m-%d"), file))
    source = SourceSnapshot(
        bucket="",
        key=place.key,
        version_id="",
        size=file.stat().st_size,
        sha256="",
        lines=good.lines,
        quarantined_lines=good.lines - good.records,
    )
    canary, least = spec.canary, MIN_RECORDS.get(spec.provider, 1)
    manifest = describe(
        spec,
        place,
        source,
        good.shards,
        prices=job_prices(spec, book, at=now),
        spec_digest=found.digest,
        created_at=now,
        created_by="plan",
        canary_records=canary_size(canary.records, good.records, least) if canary is not None else 0,
    )
    return plan_of(manifest, spec, syntax_bytes=Requests(spec, formats).syntax_bytes)


def _facts(told: dict[str, Any]) -> list[tuple[str, Any]]:
    plan, bad = told["plan"] or {}, told["bad_lines"]
    rows: list[tuple[str, Any]] = [
        ("file", told["file"]),
        ("spec", told["spec"]),
        ("refused", "; ".join(told["refused"]) or "no"),
        ("bad lines", bad["count"]),
    ]
    rows += [(f"line {each['line']}" if each["line"] else "whole file", each["reason"]) for each in bad["first"]]
    if not plan:
        return rows
    return [*rows, *plan_facts(plan, without_bad_lines=bool(bad["count"]))]


def plan_facts(plan: dict[str, Any], *, without_bad_lines: bool) -> list[tuple[str, Any]]:
    """A plan as people read it; `plan` is the JSON of a `JobPlan`."""
    low, high = plan["cost_low_usd"], plan["cost_high_usd"]
    return [
        ("records", f"{plan['records']:,} without the bad lines" if without_bad_lines else plan["records"]),
        ("shards", plan["shards"]),
        ("provider jobs", plan["provider_jobs"]),
        ("model", f"{plan['provider']} {plan['model']}"),
        ("input tokens", f"about {plan['estimated_input_tokens']:,}, at worst {plan['worst_case_input_tokens']:,}"),
        ("output tokens", f"at least {plan['least_output_tokens']:,}, at worst {_number(plan)}"),
        ("cost", f"{low or 'unknown'} to {high or 'unknown'} US dollars"),
        ("price", f"{plan['price']}, {plan['price_source']}" if plan["price"] else "unknown"),
        ("AWS's own cost", f"about {plan['aws_cost_usd']} US dollars"),
        ("time", f"{plan['time_s']['low'] / 3600:.1f} to {plan['time_s']['high'] / 3600:.1f} hours"),
        ("history events", f"job {plan['history_events']['job']}, shard {plan['history_events']['shard']:,} of 25,000"),
    ]


def _number(plan: dict[str, Any]) -> str:
    most = plan["worst_case_output_tokens"]
    return "unknown: the spec has no generation.max_output_tokens" if most is None else f"{most:,}"

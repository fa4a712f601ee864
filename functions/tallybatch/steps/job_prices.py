"""The prices of a job: looked up once, when its file is prepared, and refused where nobody knows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from tallybatch.domain.errors import BadInput, NotFound, Problem
from tallybatch.domain.layout import JobKeys, price_keys
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.plan import JobPlan
from tallybatch.domain.price_book import PriceBook
from tallybatch.domain.price_file import PriceFile, parse_prices, problem_of_no_price
from tallybatch.domain.prices import Lane, Price, find
from tallybatch.domain.rows import Submission
from tallybatch.domain.spec import Spec
from tallybatch.ports import Objects


def price_book(objects: Objects, tenant: str) -> PriceBook:
    """With the user's own prices of the bucket. Raises `BadInput` for a file that cannot be used."""
    return PriceBook(list(_user_files(objects, tenant)))


def _user_files(objects: Objects, tenant: str) -> Iterator[PriceFile]:
    for key in price_keys(tenant):
        try:
            data = objects.get(key)
        except NotFound:
            continue
        yield parse_prices(data, file=key)


def booked_price(objects: Objects, row: Submission) -> Price | None:
    """At which a submission of a job that has begun is booked."""
    try:
        manifest = Manifest.model_validate_json(objects.get(JobKeys(row.tenant, row.job_key).manifest))
    except NotFound:
        return None
    return find(manifest.prices, row.provider, row.model or manifest.model_resolved, row.lane)


def job_prices(spec: Spec, book: PriceBook, *, at: float) -> list[Price]:
    """Of every model that the spec names, in both lanes, where there is a price."""
    lanes: tuple[Lane, ...] = ("batch", "on_demand")
    found = (book.price(provider, model, lane, at=at) for provider, model in _targets(spec) for lane in lanes)
    return [price for price in found if price is not None]


def unpriced(spec: Spec, prices: Sequence[Price]) -> list[Problem]:
    """A problem for each lane that the job will use and nobody knows the price of, unless the spec allows it. Where
    each record has a limit in dollars it cannot: what has no price would never reach it."""
    capped = spec.limits.allow_unpriced and spec.limits.max_cost_per_record_usd is not None
    if spec.limits.allow_unpriced and not capped:
        return []
    lanes: set[Lane] = {spec.lane}
    if spec.retry.small_set == "on_demand" or spec.retry.deadline_rescue is not None:
        lanes.add("on_demand")
    return [
        problem_of_no_price(provider, model, lane, capped=capped)
        for provider, model in _targets(spec)
        for lane in sorted(lanes)
        if find(prices, provider, model, lane) is None
    ]


def over_budget(spec: Spec, plan: JobPlan) -> Problem | None:
    """Set if the worst case may cost more than the spec's limit, or nobody can tell what it may cost."""
    limit, high = spec.limits.max_cost_usd, plan.cost_high_usd
    if limit is None or (high is not None and Decimal(high) <= limit):
        return None
    reason = f"the job may cost {high} US dollars at worst, {plan.cost_low_usd} at least; its limit is {limit}"
    if high is None:
        reason = f"nobody can tell what the job may cost at worst, and its limit is {limit} US dollars"
    reason += "; raise the limit, or lower generation.max_output_tokens or retry.max_attempts"
    return Problem(reason, key="limits.max_cost_usd", code="over_budget")


def refuse_for_money(spec: Spec, prices: Sequence[Price], plan: JobPlan, *, where: str) -> None:
    """Raises `BadInput` before anything is spent: for want of a price, or of money."""
    for problems, what in ((unpriced(spec, prices), "the model has no price"), (_budget(spec, plan), "over budget")):
        if problems:
            raise BadInput(what, problems, where=where, do="mend that, then drop the file again; nothing was spent")


def _budget(spec: Spec, plan: JobPlan) -> list[Problem]:
    problem = over_budget(spec, plan)
    return [] if problem is None else [problem]


def _targets(spec: Spec) -> list[tuple[str, str]]:
    return list(dict.fromkeys(there.place for there in spec.targets))

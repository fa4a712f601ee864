"""The prices of a job: looked up once, when its file is prepared, and refused where nobody knows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallybatch.domain.errors import BadInput, NotFound
from tallybatch.domain.layout import price_keys
from tallybatch.domain.price_book import PriceBook
from tallybatch.domain.price_file import PriceFile, parse_prices, problem_of_no_price
from tallybatch.domain.prices import Lane, Price, find
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


def job_prices(spec: Spec, book: PriceBook, *, at: float) -> list[Price]:
    """Of every model that the spec names, in both lanes, where there is a price."""
    lanes: tuple[Lane, ...] = ("batch", "on_demand")
    found = (book.price(provider, model, lane, at=at) for provider, model in _targets(spec) for lane in lanes)
    return [price for price in found if price is not None]


def refuse_unpriced(spec: Spec, prices: Sequence[Price], *, where: str) -> None:
    """Raises `BadInput` if a lane that the job will use has no price, unless the spec allows it."""
    if spec.limits.allow_unpriced:
        return
    lanes: set[Lane] = {spec.lane}
    if spec.retry.small_set == "on_demand" or spec.retry.deadline_rescue is not None:
        lanes.add("on_demand")
    problems = [
        problem_of_no_price(provider, model, lane)
        for provider, model in _targets(spec)
        for lane in sorted(lanes)
        if find(prices, provider, model, lane) is None
    ]
    if problems:
        raise BadInput(
            "the model has no price",
            problems,
            where=where,
            do="give the price, or allow it; then drop the file again; nothing was spent",
        )


def _targets(spec: Spec) -> list[tuple[str, str]]:
    fallback = [(target.provider, target.model) for target in spec.fallback]
    return list(dict.fromkeys([(spec.provider, spec.model_resolved), *fallback]))

"""A person hands in decisions about records in review."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ReviewRequest
from tallybatch.observability import Event, observed
from tallybatch.settings import ResolveReview
from tallybatch.steps import resolve_review


@observed(ResolveReview)
def handler(event: Event, settings: ResolveReview) -> Any:
    return resolve_review.run(ReviewRequest.model_validate(event), wiring.resolve_review_ports(settings)).model_dump()

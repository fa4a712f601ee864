"""The tokens of a whole batch, where the provider tells them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallybatch.adapters.providers.openai.jobs import read_job
from tallybatch.domain.outcomes import Usage

TOLD = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 130,
}


def batch(usage: Any) -> bytes:
    return json.dumps({"id": "batch_1", "object": "batch", "status": "completed", "usage": usage}).encode()


def test_given_a_batch_that_tells_its_usage_when_read_then_every_kind_is_there() -> None:
    assert read_job(batch(TOLD)).usage == Usage(100, 40, 30, 20)


@pytest.mark.parametrize("usage", [None, [], "many"])
def test_given_a_batch_that_tells_none_when_read_then_it_is_unknown_and_not_zero(usage: Any) -> None:
    assert read_job(batch(usage)).usage is None


@pytest.mark.parametrize("odd", [None, "many", [1]])
def test_given_details_of_another_shape_when_read_then_the_rest_counts(odd: Any) -> None:
    assert read_job(batch({**TOLD, "input_tokens_details": odd, "output_tokens": odd})).usage == Usage(100, 0, 0, 20)

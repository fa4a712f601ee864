"""Embedding vectors of any provider: what makes one usable."""

from __future__ import annotations

import math

import msgspec

encode = msgspec.json.Encoder().encode


def checked(values: list[float] | None) -> list[float]:
    """The numbers of one vector. Raises `ValueError` if it is absent, empty, or not finite."""
    if not values:
        raise ValueError("a vector is empty")
    if not math.isfinite(sum(values)) and not all(map(math.isfinite, values)):
        raise ValueError("a vector holds a number that is not finite")
    return values

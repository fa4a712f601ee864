"""Embedding vectors as numbers."""

from __future__ import annotations

import math


def checked(values: list[float] | None) -> list[float]:
    """The vector itself. Raises `ValueError` if it is absent, empty or holds a number that is not finite."""
    if not values:
        raise ValueError("a vector is empty")
    if not math.isfinite(sum(values)) and not all(map(math.isfinite, values)):
        raise ValueError("a vector holds a number that is not finite")
    return values

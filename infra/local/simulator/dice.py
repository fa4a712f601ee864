"""Deterministic dice: the same seed always throws the same numbers, on every machine and Python version."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_MASK = (1 << 64) - 1


class Dice:
    """SplitMix64 (Steele, Lea, Flood, 2014). Cheap to start, which matters: every record has its own."""

    __slots__ = ("_state",)

    def __init__(self, seed: bytes | int) -> None:
        self._state = (int.from_bytes(seed[:8], "big") if isinstance(seed, bytes) else seed) & _MASK

    def throw(self) -> int:
        """0 .. 2**64 - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def fraction(self) -> float:
        """0 <= x < 1."""
        return self.throw() / 2**64

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + self.throw() % (high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.throw() % len(options)]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        for index in range(len(items) - 1, 0, -1):
            other = self.throw() % (index + 1)
            items[index], items[other] = items[other], items[index]

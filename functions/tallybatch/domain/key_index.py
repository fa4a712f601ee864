"""Which business keys occur more than once in a file: found in memory that does not grow with the file.

Keys go to disk in blocks, each with the sorted 64-bit hashes of its keys. The hashes alone tell, slice by slice,
whether any key came twice; the keys are read again only if so.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

_SLICE_HASHES = 65_536
"""Hashes looked at together, about."""
_LOWEST, _RANGE = -(1 << 63), 1 << 64

_Block = tuple[list[str], list[int]]


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    key: str
    first_line: int
    line: int


class KeyIndex:
    """Takes keys with the numbers of their lines. `folder` is for the blocks."""

    _BLOCK_KEYS = 32_768

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: list[str] = []
        self._lines: list[int] = []
        self._blocks: list[Path] = []

    def extend(self, keys: list[str], lines: list[int]) -> None:
        self._keys += keys
        self._lines += lines
        if len(self._keys) >= self._BLOCK_KEYS:
            self._spill()

    def _spill(self) -> None:
        path = self._folder / f"keys-{len(self._blocks)}"
        path.write_bytes(msgspec.msgpack.encode((self._keys, self._lines)))
        path.with_suffix(".hashes").write_bytes(_hashes(self._keys).tobytes())
        self._blocks.append(path)
        self._keys, self._lines = [], []

    def duplicates(self) -> Iterator[DuplicateKey]:
        """Every occurrence after the first, in the order of lines, with both line numbers."""
        twice = self._hashes_twice()
        if not twice:
            return
        seen: dict[str, int] = {}
        for keys, lines in self._all_blocks():
            for key, line in zip(keys, lines, strict=True):
                if hash(key) in twice:
                    first = seen.setdefault(key, line)
                    if first != line:
                        yield DuplicateKey(key, first, line)

    def _all_blocks(self) -> Iterator[_Block]:
        for path in self._blocks:
            yield msgspec.msgpack.decode(path.read_bytes(), type=_Block)
        yield self._keys, self._lines

    def _hashes_twice(self) -> set[int]:
        """Hashes that two keys have; almost always the same key."""
        blocks = [_hashes(self._keys)]
        found: set[int] = set()
        slices = len(self._blocks) * self._BLOCK_KEYS // _SLICE_HASHES + 1
        for number in range(slices):
            low, high = _LOWEST + _RANGE * number // slices, _LOWEST + _RANGE * (number + 1) // slices
            inside = _between(blocks[0], low, high)
            for path in self._blocks:
                hashes = array("q")
                hashes.frombytes(path.with_suffix(".hashes").read_bytes())
                inside += _between(hashes, low, high)
            if len(set(inside)) < len(inside):
                inside.sort()
                found.update(one for one, next_one in pairwise(inside) if one == next_one)
        return found


def _hashes(keys: list[str]) -> array[int]:
    return array("q", sorted(map(hash, keys)))


def _between(hashes: array[int], low: int, high: int) -> list[int]:
    return hashes[bisect_left(hashes, low) : bisect_left(hashes, high)].tolist()

"""Embedding vectors: ordered by index, floats from JSON or from base64 (little-endian float32)."""

from __future__ import annotations

import base64
import struct

import msgspec

from tallybatch.adapters.providers.common.vectors import checked, encode


class Vector(msgspec.Struct, gc=False):
    embedding: list[float] | str | None = None
    index: int | None = None


def answer(data: list[Vector]) -> str:
    """JSON of the vectors in input order: an array of floats for one input, an array of those for several.

    Raises `ValueError` if one is absent, empty, not finite, or has no place of its own.
    """
    if len(data) == 1:
        return encode(floats(data[0])).decode()
    placed = {vector.index: vector for vector in data}
    if set(placed) != set(range(len(data))):
        raise ValueError("the vectors' indices are not 0 to n-1")
    return encode([floats(placed[place]) for place in range(len(data))]).decode()


def floats(vector: Vector) -> list[float]:
    """The numbers of one vector. A base64 text holds 4 bytes per number (SDK, embedding_create_params.py)."""
    values = vector.embedding
    if isinstance(values, str):
        raw = base64.b64decode(values, validate=True)
        if len(raw) % 4:
            raise ValueError("a base64 vector is not a whole number of float32 values")
        values = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return checked(values)

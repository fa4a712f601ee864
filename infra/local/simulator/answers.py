"""Answers: a function of the request alone, valid under the JSON Schema that the request asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from typing import Any

import orjson

from infra.local.simulator.dice import Dice

GENRES = (
    "Action", "Adventure", "Animation", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Horror", "Musical",
    "Mystery", "Romance", "Science Fiction", "Thriller", "War", "Western",
)  # fmt: skip
WORDS = (
    "account", "answer", "ballad", "bridge", "candle", "cargo", "copper", "daylight", "engine", "evening", "ferry",
    "garden", "harbour", "island", "journey", "kettle", "lantern", "letter", "market", "meadow", "number", "orchard",
    "paper", "quarter", "river", "signal", "station", "summer", "ticket", "valley", "window", "winter",
)  # fmt: skip
_MAX_DEPTH = 6
_IMPLIED_KINDS = {"properties": "object", "items": "array", "minimum": "number", "maximum": "number"}
_FORMATS = {
    "date": lambda dice: f"{dice.between(1970, 2026)}-{dice.between(1, 12):02}-{dice.between(1, 28):02}",
    "date-time": lambda dice: f"{dice.between(1970, 2026)}-{dice.between(1, 12):02}-{dice.between(1, 28):02}T12:00:00Z",
    "time": lambda dice: f"{dice.between(0, 23):02}:{dice.between(0, 59):02}:00Z",
    "email": lambda dice: f"{dice.pick(WORDS)}@example.com",
    "uri": lambda dice: f"https://example.com/{dice.pick(WORDS)}",
    "uuid": lambda dice: f"{dice.throw():016x}-0000-4000-8000-{dice.throw() >> 16:012x}"[8:],
    "ipv4": lambda dice: f"192.0.2.{dice.between(1, 254)}",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an answer depends on, in no provider's dialect. `digest` covers the whole request."""

    digest: bytes
    user_text: str
    schema: Mapping[str, Any] | None = None
    json_object: bool = False


def tokens_of(text: str) -> int:
    """The simulator's tokenizer: a quarter of the UTF-8 bytes, rounded up."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


def answer_text(prompt: Prompt, *, variant: int = 0) -> str:
    """The same request gives the same text; another `variant` gives another one, valid under the same schema."""
    dice = Dice(blake2b(prompt.digest + bytes([variant]), digest_size=8).digest())
    if prompt.schema is not None:
        return orjson.dumps(_Generator(prompt, dice, variant).value(prompt.schema, "", 0)).decode()
    sentence = _words(dice, dice.between(6, 14))
    return orjson.dumps({"answer": sentence}).decode() if prompt.json_object else sentence


def embedding(text: str, dimensions: int) -> list[float]:
    """A unit vector that depends on the text alone."""
    raw = shake_256(text.encode("utf-8", "surrogatepass")).digest(dimensions * 2)
    values = [int.from_bytes(raw[at : at + 2], "big") - 32_767.5 for at in range(0, len(raw), 2)]
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


def _words(dice: Dice, count: int) -> str:
    return " ".join(dice.pick(WORDS) for _ in range(count)).capitalize()


class _Generator:
    """Walks a schema once. Knows local `$ref`, combinators and the keywords of OpenAI's structured outputs."""

    def __init__(self, prompt: Prompt, dice: Dice, variant: int) -> None:
        self._root = prompt.schema or {}
        self._user_text = prompt.user_text
        self._variant = variant
        self._dice = dice

    def value(self, schema: Any, name: str, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return self._string({}, name)
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._genre(schema["enum"]) if name == "genre" else self._dice.pick(schema["enum"])
        for combinator in ("anyOf", "oneOf"):
            options = schema.get(combinator)
            if options:
                rest = {key: value for key, value in schema.items() if key != combinator}
                return self.value(_merged(rest, self._option(options, depth)), name, depth)
        kind = self._kind(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind in ("integer", "number"):
            return self._number(schema, name, integer=kind == "integer")
        if kind == "boolean":
            return self._dice.throw() % 2 == 0
        return None if kind == "null" else self._string(schema, name)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(32):
            if "$ref" in schema:
                target: Any = self._root
                for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                    if part:
                        target = target[part.replace("~1", "/").replace("~0", "~")]
                schema = _merged({key: value for key, value in schema.items() if key != "$ref"}, target)
            elif "allOf" in schema:
                merged: Mapping[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
                for part in schema["allOf"]:
                    merged = _merged(merged, self._resolved(part))
                schema = merged
            else:
                break
        return schema

    def _option(self, options: Sequence[Any], depth: int) -> Mapping[str, Any]:
        plain = [self._resolved(option) for option in options]
        solid = [option for option in plain if option.get("type") != "null"]
        if depth >= _MAX_DEPTH and len(solid) < len(plain):
            return {"type": "null"}
        return self._dice.pick(solid or plain)

    def _kind(self, schema: Mapping[str, Any], depth: int) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, str):
            return kinds
        if isinstance(kinds, Sequence) and kinds:
            if depth >= _MAX_DEPTH and "null" in kinds:
                return "null"
            solid = [kind for kind in kinds if kind != "null"]
            return str(self._dice.pick(solid)) if solid else "null"
        return next((kind for keyword, kind in _IMPLIED_KINDS.items() if keyword in schema), "string")

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = [str(key) for key in schema.get("required", ())]
        names = [*properties, *(key for key in required if key not in properties)]
        if depth >= _MAX_DEPTH:
            names = [key for key in names if key in required]
        extra = schema.get("additionalProperties")
        return {
            key: self.value(properties.get(key, extra if isinstance(extra, Mapping) else {}), key, depth + 1)
            for key in names
        }

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        prefix = [self.value(item, name, depth + 1) for item in schema.get("prefixItems", ())]
        low = int(schema.get("minItems", 0 if depth >= _MAX_DEPTH else min(1, schema.get("maxItems", 1))))
        high = int(schema.get("maxItems", max(low, 0 if depth >= _MAX_DEPTH else 3)))
        items = schema.get("items", True)
        if items is False:
            return prefix
        wanted = max(len(prefix), self._dice.between(low, max(low, high)))
        unique = bool(schema.get("uniqueItems"))
        seen = {orjson.dumps(item) for item in prefix}
        for _ in range(wanted * 20):
            if len(prefix) >= wanted:
                break
            item = self.value({} if items is True else items, name, depth + 1)
            key = orjson.dumps(item)
            if not unique or key not in seen:
                seen.add(key)
                prefix.append(item)
        return prefix

    def _number(self, schema: Mapping[str, Any], name: str, *, integer: bool) -> int | float:
        low, high = schema.get("minimum"), schema.get("maximum")
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        step = schema.get("multipleOf") or (1 if integer else None)
        floor = max((bound for bound in (low, above) if bound is not None), default=None)
        ceiling = min((bound for bound in (high, below) if bound is not None), default=None)
        if floor is None:
            floor = 0 if ceiling is None else min(0, ceiling - 100)
        if ceiling is None:
            ceiling = floor + 100
        if step is not None:
            first = math.ceil(floor / step)
            last = math.floor(ceiling / step)
            first += first * step == above
            last -= last * step == below
            number = self._dice.between(first, max(first, last)) * step
            return int(number) if integer else number
        start = 0.5 if name in ("confidence", "score", "probability") else 0.02
        value = round(floor + (ceiling - floor) * (start + self._dice.fraction() * (0.98 - start)), 2)
        return value if floor < value < ceiling else (floor + ceiling) / 2

    def _string(self, schema: Mapping[str, Any], name: str) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]](self._dice)
        if name == "genre":
            text = str(self._genre(GENRES))
        elif name in ("quote", "evidence") and self._user_text.strip():
            text = " ".join(self._user_text.split("\n")[0].split(" ")[:6]).strip() or self._user_text.strip()[:20]
        else:
            text = _words(self._dice, self._dice.between(2, 6))
        while len(text) < schema.get("minLength", 0):
            text += " " + self._dice.pick(WORDS)
        return text[: int(schema["maxLength"])] if "maxLength" in schema else text

    def _genre(self, genres: Sequence[Any]) -> Any:
        """By the user's text, so that one film keeps its genre whatever else the request says."""
        digest = blake2b(self._user_text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return genres[(int.from_bytes(digest, "big") + self._variant) % len(genres)]


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both at once, for the keywords where that means more than "the last one wins"."""
    merged = {**first, **second}
    if "properties" in first and "properties" in second:
        merged["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        merged["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return merged

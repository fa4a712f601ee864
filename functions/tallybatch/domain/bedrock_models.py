"""Bedrock model ids: which family's request and result body a model speaks.

An id may be a foundation model, an ARN, or an inference profile with a geographic prefix (`us.anthropic.claude-…`,
`global.amazon.nova-…`). An application inference profile has an opaque id, which tells no family: OTHER.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Family(StrEnum):
    ANTHROPIC = "anthropic"
    NOVA = "nova"
    TITAN_EMBED = "titan-embed"
    COHERE_EMBED = "cohere-embed"
    OTHER = "other"
    """Only the Converse type has a body that we know for it."""


EMBEDDINGS = frozenset({Family.TITAN_EMBED, Family.COHERE_EMBED})

_FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"(?:^|[./])anthropic\.claude"), Family.ANTHROPIC),
    (re.compile(r"(?:^|[./])amazon\.nova-(?:\d+-)?(?:micro|lite|pro|premier)\b"), Family.NOVA),
    (re.compile(r"(?:^|[./])amazon\.titan-embed"), Family.TITAN_EMBED),
    (re.compile(r"(?:^|[./])cohere\.embed"), Family.COHERE_EMBED),
)


def family_of(model: str) -> Family:
    return next((family for pattern, family in _FAMILIES if pattern.search(model)), Family.OTHER)


def is_embedding_model(model: str) -> bool:
    return family_of(model) in EMBEDDINGS

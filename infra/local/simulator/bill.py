"""The simulated providers' own prices and invoices, written apart from ours so that the two can disagree.

Dollars a million tokens in decimal; each answer is priced as a fraction and rounded half-even to a nano-dollar.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from infra.local.simulator.journal import Tokens

Lane = Literal["batch", "on_demand"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """Of models whose name fits a shell pattern. `long_after`: with more input tokens than that, input and its cache
    cost `long_input` times as much, output `long_output` times."""

    provider: str
    model: str
    lane: Lane
    input: str
    output: str
    cached: str = ""
    written: str = ""
    long_after: int = 0
    long_input: str = "1"
    long_output: str = "1"


TARIFFS = (
    Tariff("openai", "gpt-5-mini*", "batch", "0.125", "1", "0.0125"),
    Tariff("openai", "gpt-5-mini*", "on_demand", "0.25", "2", "0.025"),
    Tariff("openai", "gpt-5-nano*", "batch", "0.025", "0.2", "0.0025"),
    Tariff("openai", "gpt-5-nano*", "on_demand", "0.05", "0.4", "0.005"),
    Tariff("openai", "gpt-5.4-mini*", "batch", "0.375", "2.25", "0.0375"),
    Tariff("openai", "gpt-5.4-mini*", "on_demand", "0.75", "4.5", "0.075"),
    Tariff("openai", "gpt-6-luna*", "batch", "0.05", "0.25", "0.005", "0.0625", 272_000, "2", "1.5"),
    Tariff("openai", "gpt-6-luna*", "on_demand", "0.1", "0.5", "0.01", "0.125", 272_000, "2", "1.5"),
    Tariff("openai", "gpt-5", "batch", "0.625", "5", "0.0625"),
    Tariff("openai", "gpt-5-20*", "batch", "0.625", "5", "0.0625"),
    Tariff("openai", "text-embedding-3-small", "batch", "0.01", "0"),
    Tariff("openai", "text-embedding-3-small", "on_demand", "0.02", "0"),
    Tariff("openai", "text-embedding-3-large", "batch", "0.065", "0"),
    Tariff("gemini", "gemini-2.5-flash", "batch", "0.15", "1.25", "0.03"),
    Tariff("gemini", "gemini-2.5-flash", "on_demand", "0.3", "2.5", "0.03"),
    Tariff("gemini", "gemini-2.5-pro", "batch", "0.625", "5", "0.125", "", 200_000, "2", "1.5"),
    Tariff("gemini", "gemini-2.5-pro", "on_demand", "1.25", "10", "0.125", "", 200_000, "2", "1.5"),
    Tariff("gemini", "gemini-embedding-001", "batch", "0.075", "0"),
    Tariff("gemini", "gemini-embedding-001", "on_demand", "0.15", "0"),
    Tariff("bedrock", "*amazon.nova-lite-v1:0", "batch", "0.03", "0.12"),
    Tariff("bedrock", "*amazon.nova-lite-v1:0", "on_demand", "0.06", "0.24", "0.015"),
    Tariff("bedrock", "*amazon.nova-micro-v1:0", "batch", "0.0175", "0.07"),
    Tariff("bedrock", "*amazon.nova-micro-v1:0", "on_demand", "0.035", "0.14", "0.00875"),
    Tariff("bedrock", "*amazon.titan-embed-text-v2:0", "batch", "0.01", "0"),
    Tariff("bedrock", "*amazon.titan-embed-text-v2:0", "on_demand", "0.02", "0"),
    Tariff("bedrock", "global.anthropic.claude-haiku-4-5*", "batch", "0.5", "2.5"),
    Tariff("bedrock", "*anthropic.claude-haiku-4-5*", "batch", "0.55", "2.75"),
    Tariff("bedrock", "*anthropic.claude-haiku-4-5*", "on_demand", "1.1", "5.5", "0.11", "1.375"),
)


def nano_usd(provider: str, model: str, lane: Lane, tokens: Tokens) -> int:
    """What one answer costs, in nano-dollars; 0 for a model that is on no list."""
    tariff = next(
        (
            each
            for each in TARIFFS
            if (each.provider, each.lane) == (provider, lane) and fnmatch.fnmatchcase(model, each.model)
        ),
        None,
    )
    if tariff is None:
        return 0
    long = bool(tariff.long_after) and tokens.input > tariff.long_after
    on_input = Fraction(Decimal(tariff.long_input if long else "1"))
    on_output = Fraction(Decimal(tariff.long_output if long else "1"))
    parts = (
        (tokens.input - tokens.cached_input - tokens.cache_write, tariff.input, on_input),
        (tokens.cached_input, tariff.cached or tariff.input, on_input),
        (tokens.cache_write, tariff.written or tariff.input, on_input),
        (tokens.output, tariff.output, on_output),
    )
    dollars = sum((count * Fraction(Decimal(price)) * factor for count, price, factor in parts), Fraction(0))
    return round(dollars / 10**6 * 10**9)


def priced(provider: str, model: str, lane: Lane, tokens: Tokens) -> Tokens:
    """The same tokens with what they cost."""
    return Tokens(**tokens.counts(), nano_usd=nano_usd(provider, model, lane, tokens))


def bent(tokens: Tokens, fault: str, *, writes_cache: bool = True) -> Tokens:
    """The usage under a fault of usage: part of the prompt from a cache, thoughts, or a very long prompt."""
    counts = tokens.counts()
    if fault == "cached_prompt":
        counts |= {"cached_input": tokens.input // 2, "cache_write": tokens.input // 5 if writes_cache else 0}
    elif fault == "thinking":
        counts |= {"output": tokens.output + 77, "reasoning": tokens.reasoning + 77}
    elif fault == "long_prompt":
        counts["input"] += 300_000
    return Tokens(**counts)

"""The providers' own quota counters: what of each model is in flight, the most that ever was, and what was refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Level:
    """Of one model at one provider. A job counts until it has ended and its quota is released."""

    jobs: int = 0
    tokens: int = 0
    peak_jobs: int = 0
    peak_tokens: int = 0
    refused: int = 0


class Meter:
    def __init__(self) -> None:
        self._levels: dict[tuple[str, str], Level] = {}
        self._totals: dict[str, Level] = {}
        self._inside: dict[str, tuple[str, str, int]] = {}

    def enter(self, provider: str, model: str, job_id: str, tokens: int = 0) -> None:
        self._inside[job_id] = (provider, model, tokens)
        for level in self._both(provider, model):
            level.jobs += 1
            level.tokens += tokens
            level.peak_jobs = max(level.peak_jobs, level.jobs)
            level.peak_tokens = max(level.peak_tokens, level.tokens)

    def leave(self, job_id: str) -> None:
        """Nothing happens for a job that never counted."""
        if job_id in self._inside:
            provider, model, tokens = self._inside.pop(job_id)
            for level in self._both(provider, model):
                level.jobs -= 1
                level.tokens -= tokens

    def refused(self, provider: str, model: str) -> None:
        for level in self._both(provider, model):
            level.refused += 1

    def summary(self) -> dict[str, Any]:
        """By provider: `models`, and `all` of them together."""
        models: dict[str, dict[str, Any]] = {}
        for (provider, model), level in sorted(self._levels.items()):
            models.setdefault(provider, {})[model] = asdict(level)
        return {
            provider: {"all": asdict(total), "models": models[provider]} for provider, total in self._totals.items()
        }

    def of(self, provider: str, model: str) -> Level:
        return self._levels.get((provider, model), Level())

    def _both(self, provider: str, model: str) -> tuple[Level, Level]:
        return (
            self._levels.setdefault((provider, model), Level()),
            self._totals.setdefault(provider, Level()),
        )

"""Gemini: `GeminiFormat` (pure), `GeminiApi` (batches), `GeminiOnDemand` (calls). Importing this loads no SDK."""

from tallybatch.adapters.providers.gemini.api import GeminiApi
from tallybatch.adapters.providers.gemini.on_demand import GeminiOnDemand
from tallybatch.adapters.providers.gemini.requests import GeminiFormat, native_problem

__all__ = ["GeminiApi", "GeminiFormat", "GeminiOnDemand", "native_problem"]

"""The Gemini Developer API's batch mode: `GeminiFormat` (pure) and `GeminiApi` (HTTP). Importing this loads no SDK."""

from tallybatch.adapters.providers.gemini.api import GeminiApi
from tallybatch.adapters.providers.gemini.requests import GeminiFormat, native_problem

__all__ = ["GeminiApi", "GeminiFormat", "native_problem"]

"""The OpenAI Batch API: `OpenAIFormat` (pure) and `OpenAIApi` (HTTP). Importing this loads no SDK."""

from tallybatch.adapters.providers.openai.api import OpenAIApi
from tallybatch.adapters.providers.openai.requests import OpenAIFormat, native_problem

__all__ = ["OpenAIApi", "OpenAIFormat", "native_problem"]

"""OpenAI: `OpenAIFormat` (pure), `OpenAIApi` (batches), `OpenAIOnDemand` (calls). Importing this loads no SDK."""

from tallybatch.adapters.providers.openai.api import OpenAIApi
from tallybatch.adapters.providers.openai.on_demand import OpenAIOnDemand
from tallybatch.adapters.providers.openai.requests import OpenAIFormat, native_problem

__all__ = ["OpenAIApi", "OpenAIFormat", "OpenAIOnDemand", "native_problem"]

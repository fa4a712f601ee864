"""Single calls for tests: the real adapters over HTTP to the simulator."""

from __future__ import annotations

from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.providers.bedrock import BedrockOnDemand
from tallybatch.adapters.providers.gemini import GeminiOnDemand
from tallybatch.adapters.providers.openai import OpenAIOnDemand
from tallybatch.ports import OnDemand
from tests.support.bedrock import bedrock_runtime


def lane(provider: str, simulator: SimulatorServer, *, key: str, timeout_s: float = 5) -> OnDemand:
    """A provider's synchronous API."""
    if provider == "bedrock":
        return BedrockOnDemand(lambda: bedrock_runtime(simulator.bedrock_endpoint_url, timeout_s=timeout_s))
    if provider == "gemini":
        return GeminiOnDemand(lambda: key, base_url=simulator.gemini_base_url, timeout_s=timeout_s)
    return OpenAIOnDemand(lambda: key, base_url=simulator.openai_base_url, timeout_s=timeout_s)

"""Amazon Bedrock: `BedrockFormat` (pure), `BedrockApi` (batch inference) and `BedrockOnDemand` (single calls)."""

from tallybatch.adapters.providers.bedrock.api import BedrockApi
from tallybatch.adapters.providers.bedrock.on_demand import BedrockOnDemand
from tallybatch.adapters.providers.bedrock.requests import BedrockFormat

__all__ = ["BedrockApi", "BedrockFormat", "BedrockOnDemand"]

"""Amazon Bedrock batch inference: `BedrockFormat` (pure) and `BedrockApi` (control plane, and results in S3)."""

from tallybatch.adapters.providers.bedrock.api import BedrockApi
from tallybatch.adapters.providers.bedrock.requests import BedrockFormat

__all__ = ["BedrockApi", "BedrockFormat"]

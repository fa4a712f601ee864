"""The Bedrock half: batch inference's control plane as botocore speaks it, with input and output in S3."""

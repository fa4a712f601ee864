"""The OpenAI half: files, batches and the synchronous endpoints, as `api.openai.com/v1` answers them."""

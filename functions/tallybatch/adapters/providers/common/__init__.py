"""What the adapters of several providers share: nothing here knows a provider, and nothing loads an SDK."""

"""Logger, metrics, and the one decorator that every handler wears."""

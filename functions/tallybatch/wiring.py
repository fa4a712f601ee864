"""The composition root: the only place that makes clients and ties adapters to ports."""

"""Tallybatch."""

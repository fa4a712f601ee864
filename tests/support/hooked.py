"""A provider's port of which single calls are done by the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hooked:
    """`hooks` by the call's name; each gets the real port first, then what was passed."""

    def __init__(self, inner: Any, **hooks: Callable[..., Any]) -> None:
        self._inner = inner
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        if name in self._hooks:
            return lambda *passed, **named: self._hooks[name](self._inner, *passed, **named)
        return getattr(self._inner, name)

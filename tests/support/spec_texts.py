"""Specs as users write them: a shortest one, and what reading one refuses."""

from __future__ import annotations

import pytest

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec

BASE = "name: film-genre\nprovider: openai\nmodel: m-1\nprompt: {user: '{{ title }}'}\n"
"""Four lines with what is required and no more; a test appends the keys that it is about."""


def spec_of(text: str) -> Spec:
    return parse_spec(text.encode())


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(BadInput) as caught:
        parse_spec(data, file="film.yaml")
    return caught.value.problems


def the_problem(text: str) -> Problem:
    (problem,) = problems_of(text)
    return problem

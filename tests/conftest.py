"""Fixtures that several kinds of tests share: an emulator per worker, and one whole local stack for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.local import ephemeral_emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint URL of an empty AWS emulator of this worker. Credentials test/test, region us-east-1; waits at 1 %."""
    with ephemeral_emulator(tmp_path_factory.mktemp("emulator")) as endpoint_url:
        yield endpoint_url

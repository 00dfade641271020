"""One Kafka broker for all of these tests; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerweave.lab.kafka import Kafka
from tests.integration.conftest import connect

__all__ = ["connect"]


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    if reason := Kafka.missing():
        pytest.skip(reason)
    with Kafka() as broker:
        yield broker

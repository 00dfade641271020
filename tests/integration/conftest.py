"""What integration tests share: clients that end with their test, and brokers that are slow to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.clients import MqttClient

Connect = Callable[..., MqttClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, and ends them with the test."""
    clients: list[MqttClient] = []

    def make(port: int, client_id: str = "", **options: Any) -> MqttClient:
        clients.append(MqttClient(port, client_id, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()

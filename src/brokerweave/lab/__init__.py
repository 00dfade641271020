"""Real brokers on loopback, for tests, the demo and docs/brokers.md.

with lab.start("mosquitto", persistence=True) as broker:
    connect(broker.host, broker.port)
"""

from __future__ import annotations

from typing import Any

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.lab.broker import Broker, free_port
from brokerweave.lab.debian import HAProxy, Mosquitto, Nats, RabbitMQ
from brokerweave.lab.makers import ActiveMQ, Aedes, Amqtt, Mochi, Moquette

__all__ = ["BROKERS", "Broker", "HAProxy", "Mosquitto", "available", "free_port", "start"]

_KINDS: tuple[type[Broker], ...] = (
    Mosquitto,
    RabbitMQ,
    Nats,
    ActiveMQ,
    Moquette,
    Aedes,
    Mochi,
    Amqtt,
)
BROKERS: dict[str, type[Broker]] = {kind.name: kind for kind in _KINDS}


def available() -> dict[str, str | None]:
    """Every broker's name, with None if it can be started here or one line that says why not."""
    return {name: kind.missing() for name, kind in BROKERS.items()}


def start(name: str, **options: Any) -> Broker:
    """A running broker; end it with `close()` or use it as a context manager."""
    kind = BROKERS.get(name)
    if kind is None:
        raise ConfigError(f"no broker is called {name!r}; known: {', '.join(BROKERS)}")
    if reason := kind.missing():
        raise Unavailable(reason)
    broker = kind(**options)
    try:
        broker.start()
    except BaseException:
        broker.close()
        raise
    return broker

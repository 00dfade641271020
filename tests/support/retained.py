"""What brokers retain, asked by clients that come for it.

Invariants: every wait is bounded; brokers are asked themselves, not through their nodes. Must not know: how
sites come to agree.
"""

from __future__ import annotations

from contextlib import suppress

from tests.support.clients import MqttClient
from tests.support.sites import Network
from tests.support.waiting import wait_until


def retained_at(port: int, *topics: str) -> dict[str, bytes]:
    """What a client that comes now is given for these exact topics. "last", asked for last, must be there."""
    client = MqttClient(port)
    try:
        for topic in (*topics, "last"):
            client.subscribe(topic, 1)
        with suppress(AssertionError):
            client.wait_for(lambda received: any(m.topic == "last" and m.retain for m in received), 1.0)
        return {m.topic: m.payload for m in client.received if m.retain and m.topic != "last"}
    finally:
        client.close()


def wait_for_retained(net: Network, expected: dict[str, bytes], *gone: str) -> None:
    """Every broker, asked directly, holds these messages, and none on the topics that are gone."""
    for name, site in net.sites.items():
        held: dict[str, bytes] = {}

        def as_expected(port: int = site.broker.port, held: dict[str, bytes] = held) -> bool:
            held.clear()
            held.update(retained_at(port, *expected, *gone))
            return held == expected

        try:
            wait_until(as_expected, f"{expected} at {name}")
        except AssertionError as late:
            late.add_note(f"{name} holds {held}; {net.node(name).status()}")
            raise

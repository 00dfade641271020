"""Three real nodes that find each other, and link only while they have something for each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from examples.strategy_rendezvous import Rendezvous

from brokerweave.lab.broker import free_port
from brokerweave.plugin import Context
from tests.integration.conftest import Connect
from tests.support.sites import QUICK, Network, Settings, merged, network
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
NAMES = "abc"
SETTINGS: Settings = merged(QUICK, {"links": {"idle_close": 1.0}})
ROUNDS, ROUND = 3, 50


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Network]:
    key = tmp_path / "key"
    key.write_text("a key that all nodes share")
    ports = {name: free_port() for name in NAMES}
    special: dict[str, Settings] = {
        name: {
            "node": {"key_file": str(key)},
            "membership": {
                "bind": f"127.0.0.1:{port}",
                "join": [f"127.0.0.1:{ports['a']}"],
                "preset": "local",
            },
        }
        for name, port in ports.items()
    }
    strategy = "examples.strategy_rendezvous:Rendezvous"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        with network([], strategy=strategy, settings=SETTINGS, special=special, alone=NAMES) as net:
            for name in NAMES:
                net.node(name).wait_for(lambda status: status["membership"]["alive"] == 3, "the others")
            yield net


def at_home(node: str) -> str:
    """A topic whose home this node is."""
    context = SimpleNamespace(node_id=node, options={}, members=lambda: frozenset(NAMES))
    strategy = Rendezvous(cast(Context, context))
    return next(topic for n in range(100) if strategy.homes(topic := f"t{n}") == {node})


def links(net: Network, name: str) -> dict[str, str]:
    return {row["neighbour"]: row["state"] for row in net.node(name).status()["links"]}


def test_links_open_carry_what_they_should_and_close(members: Network, connect: Connect) -> None:
    assert [links(members, name) for name in NAMES] == [{}, {}, {}]
    topic = at_home("b")
    subscriber = connect(members.port("c"))
    subscriber.subscribe(f"{topic}/#", 1)
    assert links(members, "c") == {"b": "up"}
    publisher = connect(members.port("a"))
    payloads = [b"%d" % number for number in range(ROUNDS * ROUND)]
    for number in range(ROUNDS):
        for payload in payloads[number * ROUND : (number + 1) * ROUND]:
            publisher.publish(f"{topic}/1", payload, 1)
        subscriber.wait_for_payload(payloads[(number + 1) * ROUND - 1])
        wait_until(
            lambda: all(set(links(members, n).values()) <= {"down"} for n in NAMES), "idle links close"
        )
    assert subscriber.payloads() == payloads
    assert [set(links(members, name)) for name in NAMES] == [{"b"}, {"a", "c"}, {"b"}]
    for name in NAMES:
        status: dict[str, Any] = members.node(name).status()
        assert status["drops"] == {}
        assert status["counters"]["idle_links_closed"] >= ROUNDS
        assert status["counters"].get("barrier_timeouts", 0) == 0


def test_two_that_dial_each_other_at_once_lose_nothing(members: Network, connect: Connect) -> None:
    """Each publishes what is at home at the other, and wants what is at home at itself."""
    ends = {"a": at_home("a"), "b": at_home("b")}
    subscribers = {name: connect(members.port(name)) for name in ends}
    for name, topic in ends.items():
        subscribers[name].subscribe(topic, 1)
    publishers = {name: connect(members.port(name)) for name in ends}
    payloads = [b"%d" % number for number in range(20)]
    for payload in payloads:
        publishers["a"].publish(ends["b"], payload, 1)
        publishers["b"].publish(ends["a"], payload, 1)
    for subscriber in subscribers.values():
        subscriber.wait_for_payload(payloads[-1])
        assert subscriber.payloads() == payloads
    assert all(members.node(name).status()["drops"] == {} for name in ends)

"""Wills of clients whose home died: who adopts a client publishes its will, in a mesh of cores."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Disconnect, Will
from brokerweave.mqtt.properties import Property
from tests.unit.care.mesh_sites import DEAD_SECONDS, Guest, injected, kill, mesh_of, strategy
from tests.unit.node.network import Network

NAMES = "deph"
LAST = Will("w", b"last", 1, False)


def mesh_with_listeners(copies: int = 2) -> Network:
    mesh = mesh_of(NAMES, copies)
    for name in "eph":
        Guest(mesh, name, f"listener-{name}").subscribe("w")
    mesh.settle()
    return mesh


def published(mesh: Network) -> dict[str, list[bytes]]:
    return {name: injected(mesh, name) for name in mesh.nodes}


@pytest.mark.parametrize("copies", [2, 3, 4])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_once_at_each_site(copies: int, qos: int) -> None:
    mesh = mesh_with_listeners(copies)
    Guest(mesh, "d", "c", will=Will("w", b"last", qos, False))
    mesh.settle()
    kill(mesh, "d")
    mesh.settle()
    assert published(mesh) == {"e": [], "p": [], "h": []}
    mesh.advance(DEAD_SECONDS)
    mesh.advance(DEAD_SECONDS)
    assert published(mesh) == {"e": [b"last"], "p": [b"last"], "h": [b"last"]}


def test_a_client_that_said_good_bye_has_no_will() -> None:
    mesh = mesh_with_listeners()
    client = Guest(mesh, "d", "c", will=LAST)
    mesh.settle()
    client.send(Disconnect())
    client.pair.ended()
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    assert published(mesh) == {"e": [], "p": [], "h": []}


def test_a_client_that_comes_back_before_its_delay_is_over_cancels_its_will() -> None:
    mesh = mesh_with_listeners()
    delayed = Will("w", b"last", 1, False, ((Property.WILL_DELAY_INTERVAL, 20),))
    Guest(mesh, "d", "c", version=5, will=delayed, properties=((Property.SESSION_EXPIRY_INTERVAL, 100),))
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    Guest(mesh, "e", "c", version=5)
    mesh.advance(30.0)
    assert published(mesh) == {"e": [], "p": [], "h": []}


def test_a_delayed_will_is_published_when_its_time_has_come() -> None:
    mesh = mesh_with_listeners()
    delayed = Will("w", b"last", 1, False, ((Property.WILL_DELAY_INTERVAL, 20),))
    Guest(mesh, "d", "c", version=5, will=delayed, properties=((Property.SESSION_EXPIRY_INTERVAL, 100),))
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    mesh.advance(15.0)
    assert published(mesh) == {"e": [], "p": [], "h": []}
    mesh.advance(10.0)
    assert published(mesh) == {"e": [b"last"], "p": [b"last"], "h": [b"last"]}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_two_holders_that_both_think_they_are_the_first_do_not_double_it_elsewhere(qos: int) -> None:
    mesh = mesh_with_listeners(copies=3)
    Guest(mesh, "d", "c", will=Will("w", b"last", qos, False))
    mesh.settle()
    kill(mesh, "d")
    one, other = holders = strategy(mesh, "e").holders_of("d")
    (third,) = set("eph") - set(holders)
    mesh.cut(one, other)
    mesh.advance(DEAD_SECONDS)
    assert mesh.nodes[one].core.counters["wills_of_dead_nodes"] == 1
    assert mesh.nodes[other].core.counters["wills_of_dead_nodes"] == 1
    assert injected(mesh, third) == [b"last"]


@pytest.mark.parametrize("died", [False, True])
def test_a_broker_that_left_a_client_gets_its_will_from_others_unless_it_took_the_client_over(
    died: bool,
) -> None:
    """d is out of reach, and its client connects again, while d takes the first connection for alive."""
    mesh = mesh_with_listeners()
    Guest(mesh, "d", "listener-d").subscribe("w")
    first = Guest(mesh, "d", "c", will=LAST)
    mesh.settle()
    for name in "eph":
        mesh.cut("d", name)
    mesh.advance(DEAD_SECONDS)
    assert injected(mesh, "e") == [b"last"]
    again = mesh.nodes["d"].core.new_pair()
    if died:
        first.pair.ended(broker_left=True)
    again.from_client(codec.encode(Connect("c"), 4))
    if not died:
        first.pair.ended(broker_left=True)
    again.from_broker(codec.encode(ConnAck(), 4))
    for name in "eph":
        mesh.link("d", name)
    mesh.settle()
    assert injected(mesh, "d") == [b"last"] * died


def test_the_next_holder_publishes_where_the_first_one_is_dead_too() -> None:
    mesh = mesh_with_listeners(copies=3)
    Guest(mesh, "d", "c", will=LAST)
    mesh.settle()
    kill(mesh, strategy(mesh, "d").holders_of("d")[0])
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    assert list(published(mesh).values()) == [[b"last"]] * 2

"""The node's states of ILDM Fig. 5 (b) last as long as what they name."""

from __future__ import annotations

import pytest

from brokerweave.cooperation.pf import PublicationFlooding
from brokerweave.plugin import NodeState
from tests.unit.node.network import Client, Network


def states(network: Network) -> dict[str, NodeState]:
    return {name: node.core.lifecycle.state for name, node in network.nodes.items()}


def started(*names: str, **settings: object) -> Network:
    network = Network()
    network.add(*names, **settings)
    for node in network.nodes.values():
        node.core.lifecycle.running = True
    return network


def settled(network: Network) -> None:
    """Elections follow each other: each begins a moment after the news for it."""
    for _ in range(20):
        network.advance(0.05)


def test_a_node_is_stopped_before_its_start_and_after_its_end() -> None:
    network = Network()
    network.add("a")
    lifecycle = network.nodes["a"].core.lifecycle
    assert states(network)["a"] is NodeState.STOPPED
    lifecycle.running = True
    assert states(network)["a"] is NodeState.RUNNING
    network.nodes["a"].core.add_neighbour("b")
    lifecycle.running = False
    assert states(network)["a"] is NodeState.STOPPED


def test_a_node_is_adding_until_the_new_neighbour_has_what_the_strategy_shares() -> None:
    network = started("a", "b", "c")
    network.link("a", "b")
    network.settle()
    client = Client(network, "a", "c")
    client.subscribe("t", 1)
    network.settle()
    assert set(states(network).values()) == {NodeState.RUNNING}
    network.stuck.add(("a", "c"))
    network.link("a", "c")
    network.settle()
    assert states(network)["a"] is NodeState.ADDING, "c has not heard of a's filters"
    network.stuck.clear()
    network.settle()
    assert states(network)["a"] is NodeState.RUNNING


def test_a_link_that_fails_meanwhile_does_not_end_the_adding() -> None:
    network = started("a", "b")
    Client(network, "a", "c").subscribe("t", 1)
    network.settle()
    network.stuck.add(("a", "b"))
    network.link("a", "b")
    network.settle()
    network.cut("a", "b")
    network.settle()
    assert states(network)["a"] is NodeState.ADDING


def test_where_nothing_is_shared_the_adding_ends_with_the_link_up() -> None:
    network = started("a", "b", strategy=PublicationFlooding)
    network.nodes["a"].core.add_neighbour("b")
    assert states(network)["a"] is NodeState.ADDING
    network.link("a", "b")
    assert states(network)["a"] is NodeState.RUNNING


@pytest.mark.parametrize("cycles", [False, True])
def test_a_node_is_removing_until_the_connection_is_closed_and_the_rest_has_heard(cycles: bool) -> None:
    network = started("a", "b", "c", cycles=cycles)
    network.link("a", "b")
    network.link("a", "c")
    settled(network)
    client = Client(network, "b", "client")
    client.subscribe("t", 1)
    network.settle()
    a = network.nodes["a"].core
    assert states(network)["a"] is NodeState.RUNNING
    network.stuck.add(("a", "c"))
    a.remove_neighbour("b")
    del network.wires["a", "b"], network.wires["b", "a"]
    network.settle()
    assert states(network)["a"] is NodeState.REMOVING
    a.neighbour_table.lost("b", 0)
    assert states(network)["a"] is NodeState.REMOVING, "c has not heard that nobody there wants t"
    network.stuck.clear()
    network.settle()
    assert states(network)["a"] is NodeState.RUNNING


def test_a_link_that_stands_by_is_added_when_its_role_is_known() -> None:
    network = started("a", "b", "c", cycles=True)
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        network.link(one, other)
        assert states(network)[one] is NodeState.ADDING
        settled(network)
    assert set(states(network).values()) == {NodeState.RUNNING}


def test_a_neighbour_that_comes_back_while_it_is_removed_is_being_added() -> None:
    network = started("a", "b")
    network.link("a", "b")
    network.settle()
    a = network.nodes["a"].core
    a.remove_neighbour("b")
    assert states(network)["a"] is NodeState.REMOVING
    a.add_neighbour("b")
    assert states(network)["a"] is NodeState.ADDING

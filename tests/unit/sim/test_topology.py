"""Wiring: one way between two nodes, or none."""

from __future__ import annotations

from random import Random

import pytest

from brokerweave.sim.topology import SHAPES, Topology, tree


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_joins_all_nodes_with_one_edge_less_than_nodes(shape: str) -> None:
    names = list("abcdefg")
    edges = tree(names, shape, Random(1))
    topology = Topology(names)
    for one, other in edges:
        topology.add(one, other)
    assert len(edges) == len(names) - 1
    assert topology.component("a") == names


def test_a_path_is_forgotten_when_the_wiring_changes() -> None:
    topology = Topology(["a", "b", "c"])
    topology.add("a", "b")
    topology.add("b", "c")
    assert topology.path("a", "c") == ("a", "b", "c")
    topology.remove("b", "c")
    assert topology.path("a", "c") is None
    assert topology.component("c") == ["c"]

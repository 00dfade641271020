from __future__ import annotations

from random import Random

import pytest

from brokerweave.sim.scale_shapes import SHAPES, FullMesh, TreeShape


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [2, 3, 10, 101])
def test_every_shape_is_one_tree_whose_parents_come_first(shape: str, nodes: int) -> None:
    tree = TreeShape(nodes, shape, Random(1))
    assert len(tree.edges()) == nodes - 1
    assert all(0 <= parent < child for child, parent in tree.edges())


@pytest.mark.parametrize(("shape", "links"), [("row", 99), ("binary", 12), ("star", 4)])
def test_the_way_from_end_to_end_is_that_of_the_shape(shape: str, links: int) -> None:
    assert TreeShape(100, shape, Random(1)).diameter() == links


def test_a_star_of_stars_has_about_as_many_hubs_as_leaves_at_each() -> None:
    tree = TreeShape(10_000, "star", Random(1))
    children = [tree.parents.count(number) for number in range(102)]
    assert children[0] == 100
    assert {98, 99} >= set(children[1:101])
    assert children[101] == 0


def test_the_middle_of_a_row_leaves_two_halves() -> None:
    tree = TreeShape(10, "row", Random(1))
    assert tree.edges()[tree.middle()] == (5, 4)


def test_the_farthest_node_of_a_row_is_its_last() -> None:
    assert TreeShape(10, "row", Random(1)).farthest() == 9


def test_in_a_mesh_everybody_is_linked_with_everybody_once() -> None:
    links = FullMesh(10).edges()
    assert len(links) == len({frozenset(link) for link in links}) == 45
    assert all(one != other for one, other in links)

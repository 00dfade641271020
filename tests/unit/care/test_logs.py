"""What a home tells its holders of publications: what they do not get from the origins, and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerweave.care import wire
from tests.unit.care.mesh_sites import DEAD_SECONDS, Guest, care, kill, mesh_of
from tests.unit.node.network import Network


@pytest.fixture
def mesh() -> Network:
    return mesh_of("dehp")


def holder_of(mesh: Network, home: str) -> str:
    (holder,) = care(mesh, home).homes.holders.names
    return holder


def told(mesh: Network, holder: str) -> Callable[[], list[str]]:
    """The publications that homes tell a holder of, from now on."""
    controls, adds = mesh.nodes[holder].core.controls, list[str]()
    take = controls[wire.LOG]

    def log(neighbour: str, payload: bytes) -> None:
        _, _, entries = wire.decode_log(payload, 0.0)
        adds.extend(str(each.held.publish.payload) for each in entries if each.held is not None)
        take(neighbour, payload)

    controls[wire.LOG] = log
    return lambda: adds


def queued(mesh: Network, holder: str, client: str) -> int:
    copies = care(mesh, holder).copies.homes.values()
    return max(len(copy.table.records[client].queue) for copy in copies if client in copy.table.records)


@pytest.mark.parametrize("origin", ["d", "another"])
def test_what_an_origin_sends_to_the_holder_its_home_does_not(mesh: Network, origin: str) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    holder = holder_of(mesh, "d")
    origin = next(name for name in "ehp" if name != holder) if origin == "another" else origin
    adds = told(mesh, holder)
    publisher = Guest(mesh, origin, "publisher")
    for number in range(5):
        publisher.publish("t", b"%d" % number)
        mesh.settle()
    assert adds() == []
    assert queued(mesh, holder, "c") == 5


def test_nor_while_sites_that_died_may_come_back_with_something(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    came = Guest(mesh, "e", "c")
    came.subscribe("t")
    mesh.settle()
    assert care(mesh, "e").homes["c"].record.version is None
    holder = holder_of(mesh, "e")
    adds = told(mesh, holder)
    for origin in "ehp":
        Guest(mesh, origin, f"at {origin}").publish("t", origin.encode())
        mesh.settle()
    assert adds() == []
    assert queued(mesh, holder, "c") == 3


def test_what_comes_before_the_holder_has_the_record_it_is_told_of(mesh: Network) -> None:
    holder = holder_of(mesh, "d")
    adds = told(mesh, holder)
    mesh.stuck.add((holder, "d"))  # what it has it cannot say
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    Guest(mesh, "d", "publisher").publish("t", b"1")
    mesh.settle()
    assert adds() == [str(b"1")]
    mesh.stuck.clear()
    mesh.settle()
    Guest(mesh, "d", "second").publish("t", b"2")
    mesh.settle()
    assert adds() == [str(b"1")]
    assert queued(mesh, holder, "c") == 2


def test_a_holder_need_not_list_ids_of_what_the_home_itself_sent(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    ((_, copy, record),) = care(mesh, holder_of(mesh, "d")).copies.of("c")
    assert record.version is not None
    assert copy.table.heard["d", 1] >= record.version

"""A publication that has two names, since its publisher sent it again elsewhere: who has it under one has it.

Its client is at d; `first` is where it was published, and died; `second` where it was sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from brokerweave.links.journal import MemoryJournal
from tests.unit.care.mesh_sites import DEAD_SECONDS, Guest, care, kill, mesh_of, restart
from tests.unit.node.network import Network


@dataclass
class Sites:
    mesh: Network
    client: Guest
    journal: MemoryJournal
    """The disk of the holder."""
    holder: str
    first: str
    second: str

    def send(self, had: bool) -> None:
        Guest(self.mesh, self.first, "publisher").publish("t", b"1", packet_id=7)
        self.mesh.settle()
        if had:
            self.client.delivered(b"1", 1)
            self.mesh.settle()
        kill(self.mesh, self.first)

    def send_again(self, *unreached: str) -> Guest:
        self.mesh.stuck |= {(self.second, name) for name in unreached}
        again = Guest(self.mesh, self.second, "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        self.mesh.settle()
        return again

    def come(self, name: str) -> Guest:
        moved = Guest(self.mesh, name, "c")
        moved.subscribe("t")
        self.mesh.settle()
        self.mesh.advance(DEAD_SECONDS)
        return moved


@pytest.fixture
def sites() -> Sites:
    mesh = mesh_of("deph")
    client = Guest(mesh, "d", "c")
    (holder,) = care(mesh, "d").homes.holders.names
    journal = MemoryJournal()
    care(mesh, holder).keep_in(lambda: journal)
    client.subscribe("t")
    mesh.settle()
    first, second = [name for name in "eph" if name != holder]
    return Sites(mesh, client, journal, holder, first, second)


@pytest.mark.parametrize("had", [True, False])
def test_who_claims_a_record_hears_of_both(sites: Sites, had: bool) -> None:
    sites.send(had)
    again = sites.send_again("d")
    kill(sites.mesh, "d")  # so `second` gives what d has not taken: the second name
    moved = sites.come(sites.holder)
    assert again.acknowledged() == [7]
    assert moved.payloads() == ([] if had else [b"1"])


@pytest.mark.parametrize("had", [True, False])
def test_a_holder_that_was_started_again_knows_what_it_took_before(sites: Sites, had: bool) -> None:
    sites.send(had)
    again = sites.send_again("d", sites.holder)
    care(sites.mesh, sites.holder).flush()
    kill(sites.mesh, sites.holder)
    kill(sites.mesh, "d")
    sites.mesh.stuck.clear()
    restart(sites.mesh, sites.holder, sites.journal)
    sites.mesh.link(sites.holder, sites.second)  # and now it takes the second name
    sites.mesh.settle()
    sites.mesh.advance(DEAD_SECONDS)
    moved = sites.come(sites.second)
    assert again.acknowledged() == [7]
    assert moved.payloads() == ([] if had else [b"1"])

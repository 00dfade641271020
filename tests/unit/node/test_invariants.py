"""Each part of a node knows when its own state is broken: one field is bent, and `check()` names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerweave.node.core import NodeCore
from tests.unit.node.network import Client, Network


def _outbox_bytes(core: NodeCore) -> None:
    core.neighbour_table["b"].lanes[0].outbox._memory_used += 1


def _outbox_sent(core: NodeCore) -> None:
    core.injectors[0].outbox._sent += 1


def _window_order(core: NodeCore) -> None:
    core.window.accept("z", 2, 1, 1)
    core.window.accept("z", 1, 1, 1)
    core.window._epochs["z"].reverse()


def _window_reach(core: NodeCore) -> None:
    core.window.accept("z", 1, 1, 1)
    core.window._epochs["z"][0].blocks[99] = 1


def _interest(core: NodeCore) -> None:
    next(iter(core.interest.records.values())).filters["unheard/of"] = 1


def _index_bytes(core: NodeCore) -> None:
    core.retained.index.bytes += 1


def _index_fingerprint(core: NodeCore) -> None:
    core.retained.index._fingerprints[7] ^= 1


def _wiring(core: NodeCore) -> None:
    core.wiring.peers["b"].up = False


BENT: dict[Callable[[NodeCore], None], str] = {
    _outbox_bytes: "the bytes in memory are counted wrong",
    _outbox_sent: "runs sent of",
    _window_order: "the epochs of z are out of order",
    _window_reach: "holds sequences outside of it",
    _interest: "records and wanted filters differ",
    _index_bytes: "the bytes of the retained index are counted wrong",
    _index_fingerprint: "the fingerprint of bucket 7 is wrong",
    _wiring: "the link with b is up and down",
}


@pytest.mark.parametrize("bend", BENT, ids=lambda bend: bend.__name__.strip("_"))
def test_a_state_that_is_broken_is_named(bend: Callable[[NodeCore], None]) -> None:
    network = Network()
    network.add("a", "b")
    network.link("a", "b")
    Client(network, "a", "s").subscribe("t/#", 1)
    network.settle()
    core = network.nodes["a"].core
    core.check()
    bend(core)
    with pytest.raises(AssertionError, match=BENT[bend]):
        core.check()

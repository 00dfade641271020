"""What may come behind a later message of its publisher, and what may not."""

from __future__ import annotations

import pytest

from brokerweave.sim.client import ModelClient
from brokerweave.sim.facts import Facts, NodeEnd, Publication
from brokerweave.sim.ledger import Ledger
from brokerweave.sim.order import Order
from brokerweave.sim.owed import Owed
from brokerweave.sim.pipes import Network
from brokerweave.sim.promises import Broken, Promises
from brokerweave.sim.topology import Topology
from brokerweave.sim.world import World

UNREAD_SINCE, STARTED_AGAIN = 5.0, 9.0


class Behind:
    """A subscriber at a had number 2. The node there owed its broker number 1, and was started at
    `UNREAD_SINCE` while its disk failed, and once more at `STARTED_AGAIN`."""

    def __init__(self) -> None:
        world = World("1")
        owed = Owed(Topology(["a", "b"]), lambda *way: True, lambda: True, lambda node: True)
        self.facts = Facts(world, Promises(), owed.excuses, cluster=False, mesh=False, cyclic=False)
        network, ledger = Network(world, lambda one, other: 0.1), Ledger(self.facts, owed)
        self._subscriber = ModelClient(world, network, ledger, "s", "a", 4, True, None)
        self._order = Order(self.facts, owed)
        for restarted in (UNREAD_SINCE, STARTED_AGAIN):
            end = NodeEnd(restarted - 1.0, False, False, False, False, frozenset(), restarted=restarted)
            self.facts.ends["a"].append(end)
        self.facts.unread[b"p:1"]["a"] = UNREAD_SINCE
        self._got(2)

    def got_what_its_broker_has_since(self, taken: float) -> None:
        self.facts.takes["a", b"p:1"].append(taken)
        self._got(1)

    def _got(self, number: int) -> None:
        payload = f"p:{number}".encode()
        publication = Publication(payload, "p", number, "b", "t", 1, False, False, number)
        self.facts.publications[payload] = publication
        self._order.check(self._subscriber, publication, 1)


def test_what_a_node_could_not_read_at_one_start_may_come_late_after_the_next() -> None:
    behind = Behind()
    behind.got_what_its_broker_has_since(STARTED_AGAIN + 0.1)
    assert sum(behind.facts.excuses.values()) == 1


@pytest.mark.parametrize("taken", [UNREAD_SINCE - 2.0, UNREAD_SINCE + 0.1])
def test_what_its_broker_had_before_that_may_not(taken: float) -> None:
    with pytest.raises(Broken, match="after number 2"):
        Behind().got_what_its_broker_has_since(taken)

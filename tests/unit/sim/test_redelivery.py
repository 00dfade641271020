"""What a restarted node gives once more is excused only where it could not know that its broker has it."""

from __future__ import annotations

from collections import Counter

import pytest

from brokerweave.mqtt.packets import Publish
from brokerweave.sim.checker import Checker
from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected_in_one_hop import ExpectedInOneHop
from brokerweave.sim.facts import Facts, NodeEnd
from brokerweave.sim.pipes import StreamNetwork
from brokerweave.sim.promises import Broken, Promises
from brokerweave.sim.topology import Topology
from brokerweave.sim.world import World

PAYLOAD = b"p:1"
ALLOWANCE = "doubled: its broker was given it for others, before its node was restarted"


class Site:
    """The broker of c got a message for others, and for the session of a client; c was restarted then."""

    def __init__(self) -> None:
        self.world = World("a seed")
        names = ["a", "c"]
        expected = ExpectedInOneHop(Topology(names), lambda *_: False, lambda: False, lambda node: True)
        self.facts = Facts(self.world, Promises(), Counter(), cluster=True, cares=True, cyclic=False)
        self.checker = Checker(self.facts, expected)
        network = StreamNetwork(self.world, lambda one, other: 0.0)
        self.client = ModelClient(self.world, network, self.checker, "s-1", "c", 4, True, None)
        publisher = ModelClient(self.world, network, self.checker, "p", "a", 4, True, None)
        self.facts.sites_clients = lambda site: [self.client] if site == "c" else []
        self.checker.made(publisher, PAYLOAD, "t", 1, False)
        self.facts.takes["c", PAYLOAD].append(1.0)
        self.facts.starts["c"] = 2.0
        message = Publish("t", PAYLOAD, 1)
        self.checker.passed_on("c", "s-1", message)
        self.checker.delivered(self.client, message)

    def give_again(self) -> None:
        self.checker.redelivering("c", "s-1", [PAYLOAD])


def test_what_a_broker_got_for_others_before_a_restart_may_be_given_once_more() -> None:
    site = Site()
    site.give_again()
    assert site.facts.allowances[ALLOWANCE] == 1


def test_not_what_its_origin_sent_there_for_the_client() -> None:
    site = Site()
    site.facts.meant[PAYLOAD].add(("s-1", "c"))
    with pytest.raises(Broken, match="which has it"):
        site.give_again()


def test_not_what_the_broker_got_since_the_restart() -> None:
    site = Site()
    site.facts.starts["c"] = 0.5
    with pytest.raises(Broken, match="which has it"):
        site.give_again()


def test_not_where_its_session_ended_meanwhile() -> None:
    site = Site()
    site.facts.broker_losses["c"].append(1.5)
    with pytest.raises(Broken, match="which has it"):
        site.give_again()


class TestASessionThatANodeDoesNotKnow:
    @pytest.fixture
    def site(self) -> Site:
        """Its client got something from the broker since the node was started."""
        site = Site()
        site.facts.starts["c"] = site.world.now
        site.facts.takes["c", PAYLOAD] = [site.world.now]
        return site

    @pytest.mark.parametrize("lost", [True, False])
    def test_may_be_given_what_it_has_where_its_disk_was_lost_or_could_not_be_read(
        self, site: Site, lost: bool
    ) -> None:
        end = NodeEnd(site.world.now, False, False, disk_failed=not lost, ever_failed=False, held=frozenset())
        end.disk_kept = not lost
        site.facts.ends["c"].append(end)
        site.give_again()
        assert site.facts.allowances["doubled: its node had forgotten a session that the broker had"] == 1

    def test_is_known_where_its_disk_could_be_read(self, site: Site) -> None:
        site.facts.ends["c"].append(NodeEnd(site.world.now, False, False, False, False, frozenset()))
        with pytest.raises(Broken, match="which has it"):
            site.give_again()

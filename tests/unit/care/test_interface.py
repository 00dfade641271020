"""The null object of care: what a node without a site book does for clients that lose their site."""

from __future__ import annotations

import inspect

import pytest

from brokerweave.care.client_care import ClientCare
from brokerweave.care.interface import Care
from brokerweave.cooperation.mesh import Mesh
from brokerweave.cooperation.pf import PublicationFlooding
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.links.run import Run
from brokerweave.plugin import Strategy, options_of
from tests.unit.node.network import Network


def asked_of_care() -> dict[str, object]:
    return {name: each for name, each in vars(Care).items() if not name.startswith("_")}


def test_care_is_asked_for_nothing_that_nobody_does() -> None:
    unanswered = asked_of_care().keys() - vars(ClientCare).keys()
    assert unanswered == {"window"}


def test_with_a_site_book_a_node_has_the_homes_of_its_clients() -> None:
    network = Network()
    options = {name: each.default for name, each in options_of(Mesh).items()}
    network.add("a", strategy=Mesh, options=options)
    core = network.nodes["a"].core
    assert isinstance(core.care, ClientCare)
    assert core.care.sites is core.strategy.sites()
    assert core.care.window == core.care.sites.window > Care.window


def test_care_is_asked_for_nothing_that_the_interface_does_not_explain() -> None:
    undocumented = [
        name for name, each in asked_of_care().items() if inspect.isfunction(each) and not each.__doc__
    ]
    assert undocumented == []


@pytest.mark.parametrize("strategy", [PublicationFlooding, SubscriptionFlooding])
def test_without_a_site_book_nothing_is_kept_and_nobody_is_watched(strategy: type[Strategy]) -> None:
    network = Network()
    network.add("a", strategy=strategy)
    found = network.nodes["a"].core.care
    assert type(found) is Care
    assert (found.watches_deliveries, found.status(), found.counters()) == (False, None, {})
    run = Run("b", 1, 1, 1, 4, 1, 2, 0.0, b"", holds=("c",))
    found.hold(run, 0)
    assert found.arrived(run, 0, "b") is run
    found.keep_in(lambda: pytest.fail("a node that keeps nothing needs no journal"))

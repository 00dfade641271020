from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from brokerweave.errors import ConfigError
from brokerweave.placement.core import ControllerCore, CoreSettings
from brokerweave.placement.emma import EmmaPolicy
from brokerweave.placement.graph import Graph, GraphGateway, GraphSite, Loads
from brokerweave.placement.policy import GROUP, Move, PlacementPolicy, PolicySettings, policy
from brokerweave.placement.quality import Sample
from brokerweave.placement.steady import SteadyPolicy
from tests.unit.test_layers import ROOT


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyproject.toml declares is installed, whether or not somebody installed it since."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    found = [EntryPoint(name, value, GROUP) for name, value in points.items()]
    monkeypatch.setattr("brokerweave.placement.policy.entry_points", lambda group: found)


class Everywhere(PlacementPolicy):
    """A policy of somebody else's, with bad manners: it moves the pinned, and to sites that are closed."""

    def place(self, graph: Graph, gateway: GraphGateway, loads: Loads) -> list[str]:
        return list(graph.sites)

    def moves(self, graph: Graph, loads: Loads) -> Iterator[Move]:
        for gateway in graph.gateways.values():
            for site in graph.sites:
                for client in gateway.clients.values():
                    yield Move(gateway.id, client.id, client.site, site, "why not")
        yield Move("nobody", None, "a", "b", "it never was")


def test_policies_are_found_by_name_or_spelled_out() -> None:
    assert policy("steady") is SteadyPolicy
    assert policy("emma") is EmmaPolicy
    assert policy(f"{__name__}:Everywhere") is Everywhere


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stead", "did you mean 'steady'"),
        ("no.such:Thing", "cannot be loaded"),
        (f"{__name__}:pytest", "not a subclass"),
    ],
)
def test_what_is_no_policy_is_an_error_that_says_so(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        policy(name)


def test_whatever_a_policy_asks_for_the_pinned_stay_and_closed_sites_get_nobody() -> None:
    core = ControllerCore("c", Everywhere(PolicySettings()), CoreSettings(), lambda order: None, 0.0)
    for site in "abc":
        core.site_here(GraphSite(site, ("192.0.2.1", 1883)))
    core.gateway_heard("g", "", 0.0)
    core.client_at("g", "free", "a")
    core.client_at("g", "fixed", "a")
    core.pin("fixed", "a")
    core.drain("b", 1.0, 0.0)
    plan = core.plan(0.0)
    assert [(wish.move.client, wish.move.target) for wish in plan] == [("free", "c")], "and once each"


def test_the_policy_in_the_docs_works() -> None:
    text = (ROOT / "docs" / "gateways.md").read_text()
    names: dict[str, type[PlacementPolicy]] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    core = ControllerCore("c", names["Nearest"](PolicySettings()), CoreSettings(), lambda order: None, 0.0)
    for site, trip in (("a", 0.030), ("b", 0.010)):
        core.site_here(GraphSite(site, ("192.0.2.1", 1883)))
        core.graph.measured("g", site, Sample(0.0, trip))
    core.gateway_heard("g", "", 0.0)
    core.client_at("g", "x", "a")
    (wish,) = core.plan(0.0)
    assert (wish.move.client, wish.move.origin, wish.move.target) == ("x", "a", "b")

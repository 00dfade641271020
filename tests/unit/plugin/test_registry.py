"""Finding plug-ins by name."""

from __future__ import annotations

import pytest

from brokerweave.cooperation.pf import PublicationFlooding
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.errors import ConfigError
from brokerweave.plugin import Listener, Strategy, registry


class Hub(Strategy):
    name = "hub"


class Nameless(Strategy):
    pass


class Watcher(Listener):
    name = "watcher"


def test_installed_strategies_are_found_by_their_names() -> None:
    assert registry.strategy("pf") is PublicationFlooding
    assert registry.strategy("sf") is SubscriptionFlooding


def test_a_class_can_be_spelled_out() -> None:
    assert registry.strategy(f"{__name__}:Hub") is Hub
    assert registry.listener(f"{__name__}:Watcher") is Watcher


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown strategy 'sff'; did you mean 'sf'\? Known: .*pf, .*sf"):
        registry.strategy("sff")


def test_an_unknown_name_like_no_other_is_answered_with_all_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown listener 'gossip'\. Known: "):
        registry.listener("gossip")


@pytest.mark.parametrize("name", [f"{__name__}:Watcher", f"{__name__}:registry", f"{__name__}:pytest.raises"])
def test_what_is_not_a_strategy_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"not a subclass of brokerweave\.plugin\.Strategy"):
        registry.strategy(name)


def test_a_class_without_a_name_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match="has no name; write name = "):
        registry.strategy(f"{__name__}:Nameless")


def test_a_strategy_is_not_a_listener() -> None:
    with pytest.raises(ConfigError, match=r"not a subclass of brokerweave\.plugin\.Listener"):
        registry.listener(f"{__name__}:Hub")


@pytest.mark.parametrize("name", ["no_such_module:Hub", f"{__name__}:NoSuchClass", "a b:c", ":", "x:"])
def test_what_cannot_be_loaded_is_a_config_error_that_names_it(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        registry.strategy(name)

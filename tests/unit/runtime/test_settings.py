"""What a strategy declares in its class decides some of the node's settings, whatever its name is."""

from __future__ import annotations

from typing import ClassVar

from brokerweave.config import load
from brokerweave.node.core import Settings
from brokerweave.plugin import Strategy, option, registry
from brokerweave.runtime.settings import core_settings, implied

NODE = {"node.id": "a", "node.listen": "127.0.0.1:1883", "node.broker": "127.0.0.1:1884"}
HERE = f"{__name__}:"


class Plain(Strategy):
    name: ClassVar[str] = "plain"


class Clustered(Strategy):
    name: ClassVar[str] = "clustered"
    cluster_delivery: ClassVar[bool] = True


class Patient(Clustered):
    name: ClassVar[str] = "patient"
    tree: ClassVar[bool] = False
    patience = option(3.5, "How long others are waited for.", unit="seconds")


def settings_of(strategy: type[Strategy], **flags: object) -> Settings:
    config = load(None, {**NODE, "node.strategy": HERE + strategy.__name__, **flags})
    return core_settings(config, 1, registry.strategy(config.node.strategy))


def test_the_configuration_decides_where_a_strategy_declares_nothing() -> None:
    local = {"node.delivery": "local", "node.subscribe": "async"}
    found = settings_of(Plain, **local)
    assert (found.cluster_timeout, found.barrier_timeout) == (None, None)
    waits = {"node.delivery": "cluster", "node.cluster_timeout": 4.0, "node.subscribe": "async"}
    found = settings_of(Plain, **waits)
    assert (found.cluster_timeout, found.barrier_timeout) == (4.0, None)
    assert implied(Plain) == []


def test_a_strategy_may_ask_for_cluster_delivery() -> None:
    found = settings_of(Clustered, **{"node.delivery": "local", "node.cluster_timeout": 4.0})
    assert found.cluster_timeout == 4.0
    assert implied(Clustered) == ["delivery cluster"]


def test_the_patience_of_a_strategy_stands_for_both_timeouts() -> None:
    flags = {"node.delivery": "local", "node.subscribe": "async", "set": ["patient.patience=0.5"]}
    found = settings_of(Patient)
    assert (found.cluster_timeout, found.barrier_timeout) == (3.5, 3.5)
    found = settings_of(Patient, **flags)
    assert (found.cluster_timeout, found.barrier_timeout, found.options) == (0.5, 0.5, {"patience": 0.5})
    assert implied(Patient) == [
        "delivery cluster",
        "subscribe barrier",
        "cycles none (its routes need no spanning tree: tree = False)",
        "patience for timeouts",
    ]

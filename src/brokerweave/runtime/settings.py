"""The configuration in the words of the layers below, which do not know where their settings come from.

Pure functions of a configuration. Must not know: sockets, files.
"""

from __future__ import annotations

from brokerweave.config import NodeConfig
from brokerweave.node.checkpointer import Bounds
from brokerweave.node.core import Settings
from brokerweave.node.retained import RetainedSettings
from brokerweave.node.taps import Tap
from brokerweave.plugin import Strategy


def core_settings(config: NodeConfig, epoch: int, strategy: type[Strategy]) -> Settings:
    node, links, retained = config.node, config.links, config.retained
    options = config.options[strategy.name]
    patience = float(options[strategy.patience.name]) if strategy.patience is not None else 0.0
    clustered = strategy.cluster_delivery or node.delivery == "cluster"
    return Settings(
        node_id=node.id,
        epoch=epoch,
        lanes=links.sessions,
        ordered=links.order == "topic",
        window=links.window,
        forget_after=links.forget_after,
        session_expiry=node.session_expiry,
        cycles=links.cycles == "stand-by",
        unknown_session=node.unknown_session,
        cluster_timeout=(patience or node.cluster_timeout) if clustered else None,
        barrier_timeout=patience or (node.barrier_timeout if node.subscribe == "barrier" else None),
        options=options,
        waiting=links.waiting,
        idle_close=links.idle_close,
        max_links=links.max_links,
        retained=RetainedSettings(retained.tombstone_age, retained.max_skew, retained.max_bytes),
    )


def implied(strategy: type[Strategy]) -> list[str]:
    """What the strategy decides, whatever the configuration says, in words."""
    words = {
        "delivery cluster": strategy.cluster_delivery,
        "subscribe barrier": strategy.patience is not None,
        "cycles none (its routes need no spanning tree: tree = False)": not strategy.tree,
        "patience for timeouts": strategy.patience is not None,
    }
    return [each for each, holds in words.items() if holds]


def bounds(config: NodeConfig) -> Bounds:
    links = config.links
    return Bounds(links.window, links.order == "topic", links.outbox_memory, links.outbox_disk)


def taps(config: NodeConfig) -> list[Tap]:
    return [Tap(tap.topics, tap.exclude, tap.sample) for tap in config.taps]

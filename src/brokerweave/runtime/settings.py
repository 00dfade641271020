"""The configuration in the words of the layers below, which do not know where their settings come from.

Pure functions of a configuration. Must not know: sockets, files.
"""

from __future__ import annotations

from dataclasses import asdict

from brokerweave.config import NodeConfig
from brokerweave.node.checkpointer import Bounds
from brokerweave.node.core import Settings
from brokerweave.node.retained import RetainedSettings
from brokerweave.node.taps import Tap


def core_settings(config: NodeConfig, epoch: int, mesh: bool) -> Settings:
    """`mesh`: the strategy is one, which has its own patience with other nodes."""
    node, links, retained = config.node, config.links, config.retained
    patience = config.mesh.patience if mesh else 0.0
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
        cluster_timeout=patience or (node.cluster_timeout if node.delivery == "cluster" else None),
        barrier_timeout=patience or (node.barrier_timeout if node.subscribe == "barrier" else None),
        options=asdict(config.mesh) if mesh else {},
        idle_close=links.idle_close,
        max_links=links.max_links,
        retained=RetainedSettings(retained.tombstone_age, retained.max_skew, retained.max_bytes),
    )


def bounds(config: NodeConfig) -> Bounds:
    links = config.links
    return Bounds(links.window, links.order == "topic", links.outbox_memory, links.outbox_disk)


def taps(config: NodeConfig) -> list[Tap]:
    return [Tap(tap.topics, tap.exclude, tap.sample) for tap in config.taps]

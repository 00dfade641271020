"""What `brokerweave status` shows: the node's state as plain data.

Owns the shape of the answer, which scripts rely on. Must not know: how it is displayed.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import brokerweave
from brokerweave.config import Address
from brokerweave.links.injector import InjectorState
from brokerweave.links.outbox import Outbox
from brokerweave.node.core import NodeCore
from brokerweave.node.router import MOST_TOPICS_COUNTED
from brokerweave.runtime import compiled

if TYPE_CHECKING:
    from brokerweave.runtime.node import Node


EXPLAINED = 20
"""Lines in which a strategy says what it decided."""


def status(node: Node) -> dict[str, Any]:
    core = node.core
    drops = dict(core.counters.drops())
    for outbox in outboxes(core):
        for cause, count in outbox.dropped.items():
            if count:
                drops[cause] = drops.get(cause, 0) + count
    essentials = node.injection.essentials
    return {
        "node": {
            "id": core.node_id,
            "state": core.lifecycle.state.value,
            "uptime": round(time.time() - node.started, 3),
            "version": brokerweave.__version__,
            "scanner": compiled.state(),
            "strategy": core.strategy.name,
            "decisions": core.guarded.explain()[:EXPLAINED],
            "epoch": core.settings.epoch,
            "listen": str(node.config.node.listen),
            "health": str(node.config.node.health) if node.config.node.health else None,
            "not_ready": node.health.reason or None,
            "link_listen": str(node.config.node.link_listen) if node.config.node.link_listen else None,
            "data_dir": str(node.storage.folder),
            "broker": {
                "address": str(node.config.node.broker),
                "reachable": any(i.state is InjectorState.READY for i in core.injectors),
                "abilities": asdict(essentials) if essentials else {},
            },
        },
        "sessions": {
            "open": len(node.client_listener.relays),
            "accepted": core.counters["accepted_connections"],
            "refused": core.counters["refused_clients"] + core.counters["refused_connections_full"],
            "remembered": len(core.interest.records),
            "flooding": len(core.interest.flooded),
            "subscribers": sum(bool(record.filters) for record in core.interest.records.values()),
            "publishers": sum(pair.traffic[0] > 0 for pair in node.client_listener.relays),
        },
        "traffic": node.client_listener.traffic.totals(node.client_listener.relays),
        "links": neighbour_rows(node),
        "tree": {"nodes": core.wiring.nodes, "settled": core.wiring.settled},
        "injectors": _injector_rows(node),
        "filters": {"local": len(core.interest)},
        "topics": {"seen": core.router.topics, "counted_at_most": MOST_TOPICS_COUNTED},
        "roles": dict(core.strategy.roles()),
        "waiting": {"messages": core.waiting.runs, "bytes": core.waiting.bytes},
        "held_at_start": {"clients": len(core.initialisation), "bytes": core.initialisation.bytes},
        "retained": {**core.retained.status(), "broker": node.retained_reader.state},
        "counters": {
            **core.counters.others(),
            "duplicates_suppressed": core.window.suppressed,
            "refused_older_than_window": core.window.refused_old,
            "cluster_overflows": core.confirmations.overflows,
            "dead_letters": len(node.dead_letters),
            "internal_errors": node.problems.internal_errors,
            "disk_failures": core.wal.failures
            + node.checkpointer.failures
            + node.storage.failures
            + node.retained_store.failures
            + sum(box.journal_failures for box in outboxes(core)),
            **core.strategy.counters,
            **core.care.counters(),
            **(node.recording.counters() if node.recording else {}),
            **(node.kafka.counters() if node.kafka else {}),
            **(node.membership.counters() if node.membership else {}),
            **(node.monitoring.counters() if node.monitoring else {}),
        },
        "care": core.care.status(),
        "membership": node.membership.status() if node.membership else None,
        "members": node.membership.rows() if node.membership else [],
        "monitoring": {"listen": str(Address(*node.monitoring.address))} if node.monitoring else None,
        "kafka": node.kafka.status() if node.kafka else None,
        "edge_log": node.recording.status() if node.recording else None,
        "flight": node.flight.status() if node.flight else None,
        "drops": drops,
        "warnings": [*node.problems.warnings, *_unguarded(node)],
    }


def _unguarded(node: Node) -> list[str]:
    if node.core.admission.guarded or not node.core.neighbours():
        return []
    return ["no [acl] file: what the broker acknowledges but denies still goes to other sites"]


def neighbour_rows(node: Node) -> list[dict[str, Any]]:
    core = node.core
    rows = []
    for neighbour in core.neighbour_table.all():
        boxes = [lane.outbox for lane in neighbour.lanes]
        rows.append(
            {
                "neighbour": neighbour.id,
                "address": str(address) if (address := node.links.address(neighbour.id)) else None,
                "state": "up" if neighbour.up else "down",
                "role": core.wiring.role(neighbour.id),
                "reason": node.links.carriers.refusals.get(neighbour.id, ""),
                "lanes_up": sum(neighbour.connected),
                "lanes": len(neighbour.lanes),
                **_backlog(node, boxes),
                "sent": sum(lane.sent for lane in neighbour.lanes),
                "received": sum(lane.received for lane in neighbour.lanes),
                "repeated": sum(lane.repeated for lane in neighbour.lanes),
                **core.guarded.describe(neighbour.id),
                **core.retained.describe(neighbour.id),
            }
        )
    return rows


def _injector_rows(node: Node) -> list[dict[str, Any]]:
    return [
        {
            "lane": lane,
            "state": injector.state.value,
            "reason": injector.reason,
            **_backlog(node, [injector.outbox]),
            **asdict(injector.counters),
            "injected": sum(injector.counters.injected),
        }
        for lane, injector in enumerate(node.core.injectors)
    ]


def _backlog(node: Node, boxes: list[Outbox]) -> dict[str, Any]:
    born = [box.oldest_born for box in boxes if box.oldest_born is not None]
    return {
        "backlog_messages": sum(box.backlog_messages for box in boxes),
        "backlog_bytes": sum(box.backlog_bytes for box in boxes),
        "oldest_seconds": round(node.now() - min(born), 3) if born else 0.0,
    }


def outboxes(core: NodeCore) -> list[Outbox]:
    lanes = [lane.outbox for n in core.neighbour_table.all() for lane in n.lanes]
    return lanes + [injector.outbox for injector in core.injectors]

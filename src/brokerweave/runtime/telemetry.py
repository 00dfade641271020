"""A process's own numbers as MQTT messages, at an interval (MQTT2EdgePeer 2.5.3).

Owns one client connection, from the process to its own client listener: so the messages meet the same access
list, taps, strategy and broker as anybody's, and nothing in the relay knows of them. Invariants: without an
interval none of this runs; a broker that is away only costs the messages of that time. Must not know: who
reads them.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from brokerweave.config import Address
from brokerweave.errors import BrokerweaveError
from brokerweave.runtime.client import Client
from brokerweave.runtime.secret_files import read_password
from brokerweave.runtime.status import status
from brokerweave.runtime.tasks import PAUSE_MAX, PAUSE_MIN, supervise

if TYPE_CHECKING:
    from brokerweave.runtime.node import Node

VERSION = 1
"""Of the message's fields."""


class TelemetryPlan(NamedTuple):
    """Who tells, where, how often; and as whom it connects."""

    process: str
    topic: str
    interval: float
    username: str | None
    password_file: Path | None


class Telemetry:
    def __init__(
        self,
        plan: TelemetryPlan,
        client_listener: Address,
        sample: Callable[[], Mapping[str, Any]],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """`sample`: one message. `failed`: the task did, and is begun again."""
        self._plan, self._client_listener = plan, client_listener
        self._sample, self._failed = sample, failed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        work = supervise("telemetry", self._run, self._failed)
        self._task = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Publish as long as the connection holds; then open another."""
        pause = PAUSE_MIN
        while True:
            try:
                async with await self._connect() as client:
                    pause = PAUSE_MIN
                    await self._publish(client)
            except BrokerweaveError:
                pass  # the broker is away, and everything else says so already
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    async def _connect(self) -> Client:
        return await Client.connect(
            self._client_listener,
            client_id=f"brokerweave-telemetry-{self._plan.process}",
            username=self._plan.username,
            password=read_password(self._plan.password_file) or None,
        )

    async def _publish(self, client: Client) -> None:
        while not client.closed.is_set():
            await client.publish(self._plan.topic, json.dumps(self._sample()).encode())
            try:
                await asyncio.wait_for(client.closed.wait(), self._plan.interval)
            except TimeoutError:
                continue


def node_telemetry(node: Node, client_listener: Address) -> Telemetry:
    section, own = node.config.telemetry, node.config.node
    topic = section.topic.replace("{node}", own.id)
    plan = TelemetryPlan(
        node.core.node_id, topic, section.interval, own.broker_username, own.broker_password_file
    )
    return Telemetry(plan, client_listener, lambda: sample(node, section.interval), node.task_failed)


def sample(node: Node, interval: float) -> dict[str, Any]:
    """One message: totals since the node's start, so that a lost one is made up for by the next."""
    now = status(node)
    links, edge_log, kafka = now["links"], now["edge_log"] or {}, now["kafka"] or {}
    trips = [each["round_trip_ms"] for each in now["members"] if each["round_trip_ms"] is not None]
    return {
        "v": VERSION,
        "node": now["node"]["id"],
        "time": round(node.now(), 3),
        "interval": interval,
        "start": now["node"]["epoch"],
        "uptime": now["node"]["uptime"],
        "pid": os.getpid(),
        "address": now["node"]["listen"],
        "strategy": now["node"]["strategy"],
        "state": now["node"]["state"],
        **now["traffic"],
        "sessions": now["sessions"]["open"],
        "filters": now["filters"]["local"],
        "subscribers": now["sessions"]["subscribers"],
        "publishers": now["sessions"]["publishers"],
        "topics": now["topics"]["seen"],
        "roles": now["roles"],
        "links": len(links),
        "links_up": sum(link["state"] == "up" for link in links),
        "link_messages_sent": sum(link["sent"] for link in links),
        "link_messages_received": sum(link["received"] for link in links),
        "injected": sum(injector["injected"] for injector in now["injectors"]),
        "timed": sum(injector["timed"] for injector in now["injectors"]),
        "latency_seconds": round(sum(injector["latency_seconds"] for injector in now["injectors"]), 6),
        "round_trip_seconds": round(sum(trips) / len(trips) / 1000, 6) if trips else None,
        "backlog_messages": sum(link["backlog_messages"] for link in [*links, *now["injectors"]]),
        "lag_seconds": max((link["oldest_seconds"] for link in [*links, *now["injectors"]]), default=0.0),
        "drops": sum(now["drops"].values()),
        "recorded": now["counters"].get("edge_log_recorded", 0),
        "log_rows": edge_log.get("rows", 0),
        "kafka_lag": kafka.get("lag", 0),
        **used(),
    }


def used() -> dict[str, Any]:
    """What this process has used."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": round(own.ru_utime + own.ru_stime, 3),
        "memory_bytes": _memory(own.ru_maxrss),
    }


def _memory(most_kib: int) -> int:
    """What this process holds in memory now; where the system does not say, the most it ever held."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return most_kib * 1024

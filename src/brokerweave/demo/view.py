"""How the demo looks: a live picture in a terminal, a line every few seconds without one, and the summary.

Owns wording and layout. Must not know: how the numbers come about.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from brokerweave.demo.clients import Sensor, Subscriber
from brokerweave.demo.deliveries import DeliverySummary, Outage
from brokerweave.demo.lake import Reading
from brokerweave.demo.sites import Site

PLAIN_PERIOD = 3.0
SHOWN_EVENTS = 6
NAMED_FAILURES = 5


@dataclass(slots=True)
class Scene:
    """What there is to be seen."""

    sites: list[Site] = field(default_factory=list)
    sensors: list[Sensor] = field(default_factory=list)
    subscribers: list[Subscriber] = field(default_factory=list)
    until: float = 0.0
    """When the sensors stop, on the monotonic clock; 0 before they start."""

    def published(self, site: str) -> int:
        return sum(sensor.acknowledged for sensor in self.sensors if sensor.site == site)

    def delivered(self, site: str) -> int:
        return sum(len(each.distinct) for each in self.subscribers if each.site == site)

    def links(self) -> list[tuple[str, str, str, int]]:
        """Each link of the row with its state and backlog, both ways."""
        found = []
        for left, right in zip(self.sites, self.sites[1:], strict=False):
            rows = [_link(left, right.id), _link(right, left.id)]
            told = [row for row in rows if row]
            up = len(told) == 2 and all(row["state"] == "up" for row in told)
            backlog = sum(row["backlog_messages"] for row in told)
            found.append((left.id, right.id, "up" if up else "down", backlog))
        return found


def _link(site: Site, neighbour: str) -> dict[str, Any]:
    rows = site.status["links"] if site.status else []
    return next((row for row in rows if row["neighbour"] == neighbour), {})


class View:
    """`event` tells what happened; `refresh` is called often and decides itself when to show something."""

    def __init__(self, console: Console, scene: Scene, *, live: bool) -> None:
        self.console = console
        self._scene = scene
        self._began = time.monotonic()
        self._events: list[str] = []
        self._plain_due = 0.0
        self._live: Live | None = None
        if live:
            self._live = Live(console=console, auto_refresh=False, get_renderable=self._picture)

    def running(self) -> AbstractContextManager[object]:
        return self._live if self._live is not None else nullcontext()

    def event(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        self._events.append(line)
        if self._live is None:
            self.console.print(line, soft_wrap=True)
        else:
            self._live.refresh()

    def refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()
        elif self._scene.subscribers and time.monotonic() >= self._plain_due:
            self._plain_due = time.monotonic() + PLAIN_PERIOD
            self.event(self._plain_line())

    def _plain_line(self) -> str:
        scene = self._scene
        published = sum(scene.published(site.id) for site in scene.sites)
        delivered = sum(scene.delivered(site.id) for site in scene.sites)
        links = "  ".join(
            f"{a}-{b} {state}" + (f" ({backlog} waiting)" if backlog else "")
            for a, b, state, backlog in scene.links()
        )
        return f"published {published:5}  delivered {delivered:5}   links: {links}"

    def _picture(self) -> RenderableType:
        sites = table("site", "broker", "node", ">published", ">delivered", ">open for it")
        total = sum(self._scene.published(site.id) for site in self._scene.sites)
        for site in self._scene.sites:
            node = Text("runs", "green") if site.status else Text("away", "bold red")
            delivered = self._scene.delivered(site.id)
            broker = f"{site.broker.name} {site.broker_version}"
            numbers = self._scene.published(site.id), delivered, max(total - delivered, 0)
            sites.add_row(site.id, broker, node, *(f"{number:,}" for number in numbers))
        events = Text("\n".join(self._events[-SHOWN_EVENTS:]), "dim")
        return Group(Text(self._headline(), "bold"), sites, self._row_of_links(), Text(), events)

    def _headline(self) -> str:
        left = self._scene.until - time.monotonic()
        if not self._scene.until:
            return "brokerweave demo: starting"
        return "brokerweave demo: " + (
            f"sensors publish for another {left:.0f} s" if left > 0 else "waiting for the last messages"
        )

    def _row_of_links(self) -> Text:
        row = Text(self._scene.sites[0].id if self._scene.sites else "")
        for _, right, state, backlog in self._scene.links():
            waiting = f" {backlog} waiting " if backlog else "══"
            if state == "up":
                row.append(f" ══{waiting}══ ", "green")
            else:
                row.append(f" ╌╌{waiting if backlog else '╌╌'}╌╌ ", "red")
            row.append(right)
        return row


def show_summary(console: Console, sites: Sequence[Site], summary: DeliverySummary, outage: Outage) -> None:
    row = " - ".join(f"{site.id} {site.broker.name}" for site in sites)
    console.print(f"\nSummary: {row}")
    back = outage.over - outage.end
    console.print(f"Node {outage.site} was killed; {back:.1f} s later it and its clients were back.\n")
    counts = table("", ">messages")
    counts.add_row("published, acknowledged to the sensor", f"{summary.published:,}")
    if summary.unacknowledged:
        counts.add_row("never acknowledged, not counted", f"{summary.unacknowledged:,}")
    counts.add_row(f"expected deliveries, to each of {len(sites)} subscribers", f"{summary.expected:,}")
    counts.add_row("delivered", f"{summary.delivered:,}")
    counts.add_row("lost", f"{len(summary.lost):,}")
    counts.add_row("doubled", f"{len(summary.doubled):,}")
    counts.add_row("doubled, allowed by QoS 1 (unacknowledged at the kill)", f"{summary.doubled_allowed:,}")
    console.print(counts)
    times = table("hops between nodes", ">deliveries", ">median", ">95 %", ">longest wait for the node")
    for each in summary.latencies:
        milliseconds = (f"{value * 1000:.1f} ms" for value in (each.median, each.p95))
        times.add_row(str(each.hops), f"{each.deliveries:,}", *milliseconds, f"{each.longest_wait:.1f} s")
    console.print(times)
    console.print(verdict(summary))


def show_gold(console: Console, readings: Sequence[Reading], lake: Path) -> None:
    """What the lake's gold table has of each sensor."""
    console.print("\nGold: what the sensors sent, as the lake has it")
    gold = table("site", "topic", ">messages", ">mean", ">lowest", ">highest", ">last")
    for each in readings:
        numbers = (f"{value:.2f}" for value in (each.mean, each.lowest, each.highest, each.last))
        gold.add_row(each.site, each.topic, f"{each.count:,}", *numbers)
    console.print(gold)
    console.print(
        f"The lake is in {lake}: bronze, silver and gold, for any reader of Parquet.", soft_wrap=True
    )


def verdict(summary: DeliverySummary) -> str:
    if summary.ok:
        return "Every acknowledged message arrived at every site; nothing was lost."
    if not summary.published:
        return "FAILED: no sensor got an acknowledgement."
    parts = []
    for word, found in (("lost", summary.lost), ("doubled", summary.doubled)):
        if found:
            named = ", ".join(f"{s}/{n}/{q} at {site}" for (s, n, q), site in found[:NAMED_FAILURES])
            more = f" and {len(found) - NAMED_FAILURES} more" if len(found) > NAMED_FAILURES else ""
            parts.append(f"{len(found)} {word} ({named}{more})")
    return "FAILED: " + "; ".join(parts) + "."


def table(*columns: str) -> Table:
    """Columns whose title begins with ">" are aligned right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return made

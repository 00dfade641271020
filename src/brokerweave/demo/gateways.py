"""`brokerweave demo --gateways`: two regions; one site is drained while clients publish, and takes them back.

Owns the clients, and the order of what happens. Invariants: every wait has a limit; whatever happens, no
client, thread or process is left. Must not know: how processes are wired, how anything else in the demo is
shown.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from rich.console import Console

from brokerweave.demo.clients import Measuring, Sensor, Speaks, Subscriber, close_all
from brokerweave.demo.moved import MovesStage, MovesTally, tally
from brokerweave.demo.regions import NAMES, ONE_WAY, Regions
from brokerweave.demo.view import table
from brokerweave.lab.debian import Mosquitto

KINDS = (Speaks(4, 1), Speaks(4, 2), Speaks(5, 1), Speaks(5, 2))
SENSORS, SUBSCRIBERS = 4, 8
"""In each region, of all kinds."""
PERIOD = 0.2
"""Seconds between two measurements of one sensor."""
SECONDS = 20.0
"""For which clients publish at least."""
SHARES = (0.25, 0.3, 0.25)
"""Of that time: before the drain, between it and the return, and after the return."""
SETTLE_SECONDS = 30.0
LATE_COPIES_SECONDS = 1.0
LINE_SECONDS = 3.0
_POLL = 0.05


def missing() -> str | None:
    """Why it cannot be shown here, in one line."""
    return Mosquitto.missing()


class GatewaysDemo:
    def __init__(self, said: Callable[[str], None], seconds: float = SECONDS) -> None:
        self.places: dict[str, dict[str, Counter[str]]] = {}
        """When, for each region: at which sites its clients were."""
        self.regions = Regions()
        self._said = said
        self._seconds = seconds
        self._sensors: list[Sensor] = []
        self._subscribers: list[Subscriber] = []
        self._measuring: Measuring | None = None
        self._line_due = 0.0

    def play(self) -> MovesTally:
        """Raises `Unavailable` if something does not come about in time."""
        self._said(f"starting two regions, {2000 * ONE_WAY:g} ms apart: in each a broker, a node, a gateway")
        self.regions.begin()
        self._connect()
        drained = NAMES[0]
        self._noted("at first")
        self._go_on(self._seconds * SHARES[0])
        stages = [self._drain(drained)]
        self._noted("drained")
        self._go_on(self._seconds * SHARES[1])
        stages.append(self._come_back(drained))
        self._noted("resumed")
        self._go_on(self._seconds * SHARES[2])
        self._settle()
        moved = [
            (list(each.arrivals), stage)
            for stage in stages
            for each in self._subscribers
            if each.site == drained
        ]
        clients = len(self._sensors) + len(self._subscribers)
        return tally(
            [sent for sensor in self._sensors for sent in sensor.sent()],
            [list(each.arrivals) for each in self._subscribers],
            moved,
            Counter(str(row["outcome"]) for row in self.regions.moves()),
            self.regions.connections() - clients,
        )

    def _connect(self) -> None:
        for region in self.regions.regions:
            for number in range(SUBSCRIBERS):
                kind = KINDS[number % len(KINDS)]
                name = f"subscriber{number}"
                self._subscribers.append(Subscriber(region.name, region.port, None, kind, name))
            for number in range(SENSORS):
                kind = KINDS[number % len(KINDS)]
                self._sensors.append(Sensor(region.name, f"s{number}", region.port, None, kind))
        for subscriber in self._subscribers:
            subscriber.start()
        for subscriber in self._subscribers:
            subscriber.wait_until_subscribed()
        for sensor in self._sensors:
            sensor.start()
        self.regions.wait(lambda: all(each.connected for each in self._sensors), "sensors connected")
        self._measuring = Measuring(self._sensors, PERIOD)
        self._measuring.start()
        self._said(
            f"in each region {SENSORS} sensors publish and {SUBSCRIBERS} subscribers listen to all, through "
            "the region's gateway; MQTT 3.1.1 and 5, QoS 1 and 2"
        )

    def _drain(self, site: str) -> MovesStage:
        begin = time.time()
        self._said(f"$ brokerweave controller drain {site}")
        for line in self.regions.command("drain", site):
            self._said(f"  {line}")
        return MovesStage(begin, time.time())

    def _come_back(self, site: str) -> MovesStage:
        """The policy finds that the site is nearer."""
        begin = time.time()
        self._said(f"$ brokerweave controller resume {site}")
        for line in self.regions.command("resume", site):
            self._said(f"  {line}")
        home = len(self._clients()) // len(NAMES)

        def back() -> bool:
            self._tick()
            return self.regions.places()[site][site] == home

        self.regions.wait(back, "everybody back")
        self._said(f"the controller's policy brought the clients of {site} back, one after another")
        return MovesStage(begin, time.time())

    def _settle(self) -> None:
        """Wait for the last messages, then for copies that should not come."""
        assert self._measuring is not None
        self._measuring.stop()
        self._said("sensors stopped; waiting for the last messages")
        self._go_on(SETTLE_SECONDS, self._complete)
        self._go_on(LATE_COPIES_SECONDS)

    def _complete(self) -> bool:
        published = sum(sensor.acknowledged for sensor in self._sensors)
        waiting = sum(sensor.waiting for sensor in self._sensors)
        return not waiting and all(len(each.distinct) >= published for each in self._subscribers)

    def _go_on(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self._tick()
            time.sleep(_POLL)

    def _tick(self) -> None:
        """A line now and then."""
        if time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_SECONDS
            published = sum(sensor.acknowledged for sensor in self._sensors)
            delivered = sum(len(each.distinct) for each in self._subscribers)
            at = sum(self.regions.places().values(), Counter[str]())
            where = ", ".join(f"{at[name]} clients at {name}" for name in NAMES)
            self._said(f"published {published:5}  delivered {delivered:6}   {where}")

    def _noted(self, when: str) -> None:
        self.places[when] = self.regions.places()

    def _clients(self) -> list[Sensor | Subscriber]:
        return [*self._sensors, *self._subscribers]

    def close(self) -> None:
        if self._measuring is not None:
            self._measuring.stop()
        close_all(self._clients())
        self.regions.close()


def show(console: Console, demo: GatewaysDemo, found: MovesTally) -> None:
    """The summary."""
    console.print("\nSummary: who was where")
    where = table("clients of", *(f">{when}" for when in demo.places))
    for name in NAMES:
        cells = (
            ", ".join(f"{count} at {site}" for site, count in sorted(places[name].items()))
            for places in demo.places.values()
        )
        where.add_row(name, *cells)
    console.print(where)
    done, expected = found.outcomes.get("done", 0), found.published * found.subscribers
    counts = table("", ">result")
    counts.add_row("moves", f"{done}")
    counts.add_row("moves that failed or were refused", f"{sum(found.outcomes.values()) - done}")
    counts.add_row("connections that clients had to open again", f"{found.reconnects}")
    counts.add_row("published, acknowledged to the sensor", f"{found.published:,}")
    counts.add_row("never acknowledged", f"{found.unacknowledged:,}")
    counts.add_row(f"expected deliveries, to each of {found.subscribers} subscribers", f"{expected:,}")
    counts.add_row("lost", f"{found.lost:,}")
    counts.add_row("doubled", f"{found.doubled:,}")
    for which, gap in zip(("median", "99 %"), found.gap, strict=True):
        counts.add_row(f"longest pause of a subscriber that moved, {which}", f"{1000 * gap:.0f} ms")
    console.print(counts)
    spacing = 1000 * PERIOD / (len(NAMES) * SENSORS)
    console.print(f"A subscriber gets a message every {spacing:g} ms, so no pause is shorter.")
    console.print(verdict(found))


def verdict(found: MovesTally) -> str:
    if found.ok:
        return "Every acknowledged message arrived once at every subscriber; every connection stayed open."
    parts = (
        f"{found.lost} lost",
        f"{found.doubled} doubled",
        f"{found.unacknowledged} never acknowledged",
        f"{found.reconnects} connections opened again",
    )
    return f"FAILED: {', '.join(parts)}; moves: {dict(found.outcomes)}."

"""What happens in the demo, in order: sites start, sensors publish, a node is killed and returns, a summary.

Owns the times and the end. Invariants: every wait has a limit; whatever happens (Ctrl-C, SIGTERM, a broker
that fails), no client, thread or child process is left. Must not know: MQTT, layout.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from rich.console import Console

from brokerweave import lab
from brokerweave.demo.clients import FILTER, Measuring, Sensor, Subscriber, close_all
from brokerweave.demo.deliveries import DeliverySummary, Outage, summarise
from brokerweave.demo.gateways import GatewaysDemo
from brokerweave.demo.gateways import missing as missing_gateways
from brokerweave.demo.gateways import show as show_gateways
from brokerweave.demo.lake import DemoPipeline
from brokerweave.demo.lake import missing as missing_pipeline
from brokerweave.demo.mesh import MeshDemo
from brokerweave.demo.mesh import missing as missing_mesh
from brokerweave.demo.sites import FEWEST_SITES, Site, SiteRow, choose, missing
from brokerweave.demo.view import Scene, View, show_gold, show_summary
from brokerweave.errors import ConfigError, Unavailable

SENSORS_A_SITE = 2
PERIOD = 0.2
"""Seconds between two measurements of one sensor."""

KILLED_AFTER, BACK_AFTER = 0.35, 0.6
"""Parts of the sensors' time at which the node is killed, and started again."""

LINKS_SECONDS = 20.0
SETTLE_SECONDS = 30.0
QUIET_SECONDS = 10.0
"""After the sensors: how long to wait for the rest, at most, and without any progress."""

LATE_COPIES_SECONDS = 1.0
"""When all have arrived: how long to watch for copies of them."""

FRAME_SECONDS = 0.25


def tell(
    seconds: float,
    *,
    plain: bool,
    brokers: Sequence[str] | None,
    strategy: str,
    lake: Path | None,
    mesh: bool = False,
) -> int:
    live = sys.stdout.isatty() and not plain
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False, markup=False)
    names = _brokers(brokers, console)
    why_not = missing_pipeline() if lake is not None else None
    if why_not is not None:
        console.print(f"note: the demo goes without the data pipeline: {why_not}", soft_wrap=True)
    pipeline = DemoPipeline(lake) if lake is not None and why_not is None else None
    if pipeline is not None:
        pipeline.check()
    demo = Demo(View(console, scene := Scene(), live=live), scene, seconds, strategy, pipeline)
    with _stop_signals():
        try:
            summary, outage = demo.play(names)
        finally:
            demo.close()
    show_summary(console, demo.scene.sites, summary, outage)
    good = summary.ok
    if mesh:
        good = _tell_mesh(console) and good
    if pipeline is not None:
        readings = pipeline.readings()
        show_gold(console, readings, pipeline.lake)
        rows = sum(each.count for each in readings)
        good = good and summary.published <= rows <= summary.published + summary.unacknowledged
    return 0 if good else 1


def tell_gateways(seconds: float) -> int:
    """Two regions and a drained site, as lines. 0 if every promise was kept. Raises `BrokerweaveError`."""
    if (why_not := missing_gateways()) is not None:
        raise Unavailable(why_not)
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False, markup=False)
    demo = GatewaysDemo(View(console, Scene(), live=False).event, seconds)
    with _stop_signals():
        try:
            found = demo.play()
        finally:
            demo.close()
    show_gateways(console, demo, found)
    return 0 if found.ok else 1


def _tell_mesh(console: Console) -> bool:
    if (why_not := missing_mesh()) is not None:
        console.print(f"note: the demo goes without a mesh: {why_not}", soft_wrap=True)
        return True
    console.print()
    view = View(console, Scene(), live=False)
    sites = MeshDemo()
    with _stop_signals():
        try:
            tally = sites.play(view.event)
        finally:
            sites.close()
    view.event(tally.sentence())
    return tally.ok


def _brokers(asked: Sequence[str] | None, console: Console) -> list[str]:
    if asked:
        if unknown := [name for name in asked if name not in lab.BROKERS]:
            raise ConfigError(f"no broker is called {unknown[0]!r}; known: {', '.join(lab.BROKERS)}")
        if len(asked) < FEWEST_SITES:
            raise ConfigError(f"the demo needs at least {FEWEST_SITES} sites, so as many brokers")
        return list(asked)
    available = lab.available()
    for reason in missing(available):
        console.print(f"note: {reason}")
    names = choose(available)
    if not names:
        raise Unavailable("no broker is installed; pip install 'brokerweave[demo]' brings one")
    if len(set(names)) == 1:
        console.print(f"note: every site has the same broker, {names[0]}; install another to see them mixed")
    return names


class Demo:
    def __init__(
        self,
        view: View,
        scene: Scene,
        seconds: float,
        strategy: str,
        pipeline: DemoPipeline | None = None,
    ) -> None:
        self.scene = scene
        self._pipeline = pipeline
        self._view = view
        self._seconds = seconds
        self._strategy = strategy
        self._row = SiteRow()
        self._measuring: Measuring | None = None

    def play(self, brokers: Sequence[str]) -> tuple[DeliverySummary, Outage]:
        with self._view.running():
            self._start(brokers)
            self._measuring = Measuring(self.scene.sensors, PERIOD)
            self.scene.until = time.monotonic() + self._seconds
            self._measuring.start()
            outage = self._crash(self.scene.sites[len(self.scene.sites) // 2])
            self._wait(lambda: False, self.scene.until - time.monotonic())
            self._measuring.stop()
            self._settle()
            self._bring()
        return self._summary(outage), outage

    def _start(self, brokers: Sequence[str]) -> None:
        self._view.event(f"starting {len(brokers)} sites: {', '.join(brokers)}")
        record = [FILTER] if self._pipeline is not None else []
        self._row.start(brokers, self._view.event, record, self._strategy)
        self.scene.sites = self._row.sites
        for site in self.scene.sites:
            self._view.event(f"site {site.id}: a node in front of {site.broker.name} {site.broker_version}")
            way_in = site.node.port, site.username
            self.scene.subscribers.append(Subscriber(site.id, *way_in))
            for number in range(1, SENSORS_A_SITE + 1):
                self.scene.sensors.append(Sensor(site.id, f"s{number}", *way_in))
        for subscriber in self.scene.subscribers:
            subscriber.start()
        for subscriber in self.scene.subscribers:
            subscriber.wait_until_subscribed()
        self._row.wait_for_interest()
        for sensor in self.scene.sensors:
            sensor.start()
        self._view.event("every subscriber listens to all sites; sensors start")

    def _crash(self, site: Site) -> Outage:
        """Kill a node while messages pass through it, and start it again on the same data."""
        self._wait(lambda: False, self._seconds * KILLED_AFTER)
        begin = time.time()
        self._row.kill(site)
        end = time.time()
        self._view.event(f"node {site.id} killed (kill -9)")
        self._wait(lambda: False, self._seconds * (BACK_AFTER - KILLED_AFTER))
        self._view.event(f"node {site.id} is started again")
        start = self._row.bring_back(site)
        self._wait(start.done, LINKS_SECONDS)
        start.result(0)
        if not self._wait(self._row.whole, LINKS_SECONDS):
            raise Unavailable(f"node {site.id} did not find its neighbours again in {LINKS_SECONDS:g} s")
        self._view.event(f"node {site.id} is back, its links are up")
        if not self._wait(lambda: all(client.connected for client in self._clients()), LINKS_SECONDS):
            raise Unavailable(f"the clients of site {site.id} did not return in {LINKS_SECONDS:g} s")
        self._view.event(f"the clients of site {site.id} are back")
        return Outage(site.id, begin, end, over=time.time())

    def _settle(self) -> None:
        """Wait for what is under way: acknowledgements, then deliveries, then copies that should not come."""
        self._view.event("sensors stopped; waiting for the last messages")
        limit = time.monotonic() + SETTLE_SECONDS
        seen, changed = -1, time.monotonic()
        while time.monotonic() < limit and time.monotonic() - changed < QUIET_SECONDS:
            if self._wait(self._complete, 1.0):
                break
            progress = sum(len(each.distinct) for each in self.scene.subscribers)
            if progress != seen:
                seen, changed = progress, time.monotonic()
        self._wait(lambda: False, LATE_COPIES_SECONDS)

    def _bring(self) -> None:
        """What the nodes recorded, through the pipeline into a lake."""
        if self._pipeline is None:
            return
        self._view.event("the pipeline brings what the nodes recorded to a lake (Spark takes some seconds)")
        addresses = [f"grpc://{site.node.status()['flight']['listen']}" for site in self.scene.sites]
        self._pipeline.run(addresses, self._pause)
        self._view.event("the lake has it all")

    def _pause(self) -> None:
        self._wait(lambda: False, FRAME_SECONDS)

    def _complete(self) -> bool:
        published = sum(sensor.acknowledged for sensor in self.scene.sensors)
        waiting = sum(sensor.waiting for sensor in self.scene.sensors)
        return not waiting and all(len(each.distinct) >= published for each in self.scene.subscribers)

    def _wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Keep the view fresh until something is done, or for so long."""
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, FRAME_SECONDS))
            self._view.refresh()
        return True

    def _summary(self, outage: Outage) -> DeliverySummary:
        return summarise(
            [site.id for site in self.scene.sites],
            [sent for sensor in self.scene.sensors for sent in sensor.sent()],
            {each.site: list(each.arrivals) for each in self.scene.subscribers},
            outage,
        )

    def _clients(self) -> list[Sensor | Subscriber]:
        return [*self.scene.sensors, *self.scene.subscribers]

    def close(self) -> None:
        if self._measuring is not None:
            self._measuring.stop()
        close_all(self._clients())
        if self._pipeline is not None:
            self._pipeline.close()
        self._row.close()


@contextmanager
def _stop_signals() -> Iterator[None]:
    """A request to stop becomes KeyboardInterrupt once; a second one does not disturb the cleaning up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before: dict[signal.Signals, object] = {}
    with suppress(ValueError):  # not the main thread: whoever owns it handles signals
        before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

"""kill -9 of the controller, the old site, the new site and the gateway in the middle of moves.

What was acknowledged is not lost; what comes twice was in flight at a kill; every client has a site again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.lab.broker import HOST, Broker
from brokerweave.lab.controller import LabController
from brokerweave.lab.gateway import LabGateway
from tests.integration.test_moves import CLIENTS, mesh, until
from tests.support.mover import Mover
from tests.support.sites import Network, start_all
from tests.support.verdicts import keeps
from tests.support.waiting import wait_until

SPREAD = 0.03
"""Seconds after the first move has begun, over which kills are spread; a move takes 10 to 20 ms."""
DELAYS = [SPREAD * number / 20 for number in range(20)]
LATE = 1.0
LAST = 500
PAUSE = 0.01
BEFORE = 1.0
"""Seconds before a kill, in which something may have arrived whose acknowledgement was still on its way."""
AGAIN = 0.05
POLICY = "brokerweave.placement.steady:SteadyPolicy"
TWO, OUTSIDE = "ab", "c"
"""The sites between which clients move; and the one where publisher and watcher are, which stays."""


class Deployment:
    def __init__(self, net: Network, key: Path, stack: ExitStack) -> None:
        self.net = net
        sites = tuple({"name": name, "clients": f"{HOST}:{net.port(name)}"} for name in TWO)
        self.controller = LabController(
            "c1",
            settings={
                "controller": {"key_file": str(key)},
                "policy": {"name": POLICY},
                "pace": {"per_second": 1000.0},
            },
            sites=sites,
        )
        own = {"key_file": str(key), "controller": [f"{HOST}:{self.controller.port}"]}
        self.gateway = LabGateway("g", settings={"gateway": own}, sites=sites)
        for each in (self.controller, self.gateway):
            stack.callback(each.close)
        start_all([self.controller.start, self.gateway.start])

    def rows(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self.gateway.ask("clients")["clients"]
        return rows

    def known(self) -> dict[str, str]:
        """The clients, as the controller knows them."""
        rows = self.controller.ask("gateways")["gateways"]
        return {client: site for row in rows for client, site in row["clients"].items()}

    def restart(self, processes: list[Broker]) -> None:
        for each in processes:
            each.stop(kill=True)
        for each in processes:
            start_all([each.start])
        self.net.wait_for_links()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("kills")
    with ExitStack() as stack:
        made = Deployment(stack.enter_context(mesh(folder)), folder / "key", stack)
        yield made
        for each in (made.gateway, made.controller):
            assert "Traceback" not in each.log_tail(10_000)


@dataclass
class Blow:
    """One kill. `back`: seconds until every client had a site and a message that was sent afterwards."""

    at: float
    until: float = 0.0
    in_flight: set[bytes] = field(default_factory=set)
    back: float = 0.0


class Crowd:
    """Clients behind the gateway that publish and subscribe, of all kinds, and those outside."""

    def __init__(self, victim: str) -> None:
        self.movers = {
            f"{victim}-{version}-{qos}": Mover(f"{victim}-{version}-{qos}", version, True)
            for version, qos in CLIENTS
        }
        self.qos = {name: int(name.rpartition("-")[2]) for name in self.movers}
        self.publisher, self.watcher = Mover(f"{victim}-publisher"), Mover(f"{victim}-watcher")
        self.down, self.up = f"{victim}/down", f"{victim}/up"
        self.sent_down: list[bytes] = []
        self.sent_up: list[bytes] = []

    async def connect(self, made: Deployment) -> None:
        await self.publisher.connect(made.net.port(OUTSIDE))
        await self.watcher.connect(made.net.port(OUTSIDE), {self.up: 2})
        for name, mover in self.movers.items():
            await mover.connect(made.gateway.port, {self.down: self.qos[name]})

    async def publish(self) -> None:
        number = 0
        while True:
            number += 1
            self.sent_down.append(b"%d" % number)
            self.publisher.publish(self.down, self.sent_down[-1], 1 + number % 2)
            for name, mover in self.movers.items():
                self.sent_up.append(f"{name}:{number}".encode())
                mover.publish(self.up, self.sent_up[-1], self.qos[name])
            await asyncio.sleep(PAUSE)

    async def come_back(self, port: int) -> None:
        """As client libraries do: whoever lost its connection tries again."""
        while True:
            for mover in self.movers.values():
                if mover.lost:
                    with suppress(OSError):
                        await mover.come_back(port)
            await asyncio.sleep(AGAIN)

    def in_flight(self) -> set[bytes]:
        return set().union(*(mover.in_flight() for mover in self.movers.values()))

    def gets(self, payload: bytes) -> bool:
        """Whether all have it, of what came last."""
        last = ([each.payload for each in mover.received[-LAST:]] for mover in self.movers.values())
        return all(payload in payloads for payloads in last)

    def has_all(self) -> bool:
        wanted = set(self.sent_down)
        whole = all(set(mover.payloads(self.down)) >= wanted for mover in self.movers.values())
        return whole and set(self.watcher.payloads(self.up)) >= set(self.sent_up)

    @property
    def pending(self) -> int:
        return self.publisher.pending + sum(each.pending for each in self.movers.values())

    def close(self) -> None:
        for client in (*self.movers.values(), self.publisher, self.watcher):
            client.close()


def victims(made: Deployment, victim: str, here: str, there: str) -> list[Broker]:
    """What is killed, and started again: a site with its broker."""
    if victim in ("old", "new"):
        site = made.net[here if victim == "old" else there]
        assert isinstance(site.broker, lab.Broker)
        return [site.broker, site.node]
    return [made.controller if victim == "controller" else made.gateway]


def kill_in_a_move(
    made: Deployment, names: list[str], there: str, processes: list[Broker], delay: float
) -> None:
    """Order all of them to move, and kill when at least one is on its way."""
    for name in names:
        made.controller.ask("move", client=name, site=there)
    begun = made.gateway.status()["counters"].get("moves_done", 0)

    def moving() -> bool:
        status = made.gateway.status()
        return bool(status["moving"] or status["counters"].get("moves_done", 0) > begun)

    wait_until(moving, "a move")
    time.sleep(delay)  # which part of the moves is hit, not what is waited for
    for each in processes:
        os.killpg(each.pid, signal.SIGKILL)


async def blow(made: Deployment, crowd: Crowd, victim: str, delay: float) -> Blow:
    names = sorted(crowd.movers)
    # All at one site, and known to be there.
    here = str(made.rows()[0]["site"])
    for row in made.rows():
        if row["site"] != here:
            await asyncio.to_thread(made.gateway.move, str(row["client"]), here)
    everywhere = dict.fromkeys(names, here)
    await until(lambda: made.known() == everywhere)
    there = next(name for name in TWO if name != here)
    processes = victims(made, victim, here, there)
    await asyncio.to_thread(kill_in_a_move, made, names, there, processes, delay)
    found = Blow(time.monotonic(), in_flight=crowd.in_flight())
    if victim == "gateway":
        await asyncio.to_thread(made.restart, processes)
    mark = len(crowd.sent_down)
    await until(lambda: len(crowd.sent_down) > mark)
    fresh = crowd.sent_down[mark]
    await until(lambda: crowd.gets(fresh))
    found.until, found.back = time.monotonic(), time.monotonic() - found.at
    found.in_flight |= crowd.in_flight() if victim == "gateway" else set()
    if victim != "gateway":
        await asyncio.to_thread(made.restart, processes)
    await until(lambda: all(str(row["site"]) in TWO and not row["moving"] for row in made.rows()))
    return found


def judge(crowd: Crowd, blows: list[Blow]) -> tuple[int, int]:
    """How many second copies came to movers, and from them; each was in flight at a kill, or breaks a
    promise."""
    to_movers = from_movers = 0
    for name, mover in crowd.movers.items():
        missing = set(crowd.sent_down) - set(mover.payloads(crowd.down))
        keeps(not missing, f"{name} lost {len(missing)}: {sorted(missing)[:20]}")
        first: dict[bytes, float] = {}
        for each in mover.received:
            if each.payload not in first:
                first[each.payload] = each.at
                continue
            to_movers += 1
            excused = any(kill.at - BEFORE <= first[each.payload] <= kill.until for kill in blows)
            keeps(excused, f"{name} got {each.payload!r} twice, which was in flight at no kill")
    counts = Counter(crowd.watcher.payloads(crowd.up))
    missing = set(crowd.sent_up) - counts.keys()
    keeps(not missing, f"of what clients published {len(missing)} were lost: {sorted(missing)[:20]}")
    for payload, count in counts.items():
        from_movers += count - 1
        excused = count == 1 or any(payload in kill.in_flight for kill in blows)
        keeps(excused, f"{payload!r} came {count} times, which was in flight at no kill")
    return to_movers, from_movers


@dataclass
class Outcome:
    """`down`, `up`: messages to and from the clients that moved."""

    down: int = 0
    up: int = 0
    twice_down: int = 0
    twice_up: int = 0
    back: list[float] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.down += other.down
        self.up += other.up
        self.twice_down += other.twice_down
        self.twice_up += other.twice_up
        self.back += other.back

    def told(self, victim: str) -> str:
        return (
            f"{len(self.back)} times kill -9 of the {victim} in the middle of moves: {self.down} messages to "
            f"clients and {self.up} from them, 0 lost; twice, of what was in flight: {self.twice_down} and "
            f"{self.twice_up}; everybody back after {statistics.median(self.back):.2f} s at the median, "
            f"{max(self.back):.2f} s at most; {sum(each > 30 for each in self.back)} times not after 30 s"
        )


async def kills(made: Deployment, victim: str, delays: list[float], name: str) -> Outcome:
    crowd = Crowd(name)
    await crowd.connect(made)
    publishing = asyncio.create_task(crowd.publish())
    coming_back = asyncio.create_task(crowd.come_back(made.gateway.port))
    await until(lambda: bool(crowd.sent_down) and crowd.gets(crowd.sent_down[0]))
    blows = [await blow(made, crowd, victim, delay) for delay in delays]
    await ended(publishing)
    await until(lambda: not crowd.pending)
    with suppress(TimeoutError):  # the judge says what is missing
        await until(crowd.has_all)
    await asyncio.sleep(LATE)  # for copies that should not come
    await ended(coming_back)
    down, up = judge(crowd, blows)
    crowd.close()
    await until(lambda: not made.rows())
    sent = len(crowd.sent_down) * len(crowd.movers), len(crowd.sent_up)
    return Outcome(*sent, down, up, [each.back for each in blows])


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["controller", "old", "new"])
def test_twenty_kills_in_the_middle_of_moves(deployment: Deployment, victim: str) -> None:
    outcome = asyncio.run(kills(deployment, victim, DELAYS, victim))
    print(outcome.told(f"{victim} site" if victim != "controller" else victim))
    if victim == "controller":
        keeps(outcome.twice_down + outcome.twice_up == 0, "a controller's death doubled something")


@pytest.mark.slow
def test_twenty_kills_of_the_gateway_in_the_middle_of_moves(deployment: Deployment) -> None:
    """Each time with other clients: a gateway does not move a session that is older than itself."""
    outcome = Outcome()
    for number, delay in enumerate(DELAYS):
        outcome.add(asyncio.run(kills(deployment, "gateway", [delay], f"gateway-{number}")))
    print(outcome.told("gateway"))

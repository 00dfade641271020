"""A gateway moves clients between the sites of a mesh, under load: nothing is lost, nothing comes twice.

What a client that moved publishes may change its place at who gets it: docs/guarantees.md says when.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from brokerweave.lab.broker import HOST
from brokerweave.lab.gateway import LabGateway
from tests.integration.test_moves import arrived, counted, mesh, out_of_order, publishing, until
from tests.support.mover import Mover
from tests.support.sites import Network, start_all
from tests.support.verdicts import keeps, once_each
from tests.support.waiting import LIMIT

NAMES = "abc"
SHORT, LONG = 5, 125
"""Moves of a run; there are eight runs."""
CROWD = 30
CLIENTS = [(4, 1), (4, 2), (5, 1), (5, 2)]


class Deployment:
    def __init__(self, net: Network, key: Path, stack: ExitStack) -> None:
        self.net = net
        sites = tuple({"name": name, "clients": f"{HOST}:{net.port(name)}"} for name in NAMES)
        self.gateway = LabGateway("g", settings={"gateway": {"key_file": str(key)}}, sites=sites)
        stack.callback(self.gateway.close)
        start_all([self.gateway.start])


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("gateway")
    with ExitStack() as stack:
        net = stack.enter_context(mesh(folder))
        made = Deployment(net, folder / "key", stack)
        yield made
        assert "Traceback" not in made.gateway.log_tail(1000)
        assert made.gateway.status()["counters"]["internal_errors"] == 0


def all_at(gateway: LabGateway, names: set[str], site: str) -> bool:
    rows = [row for row in gateway.ask("clients")["clients"] if row["client"] in names]
    return len(rows) == len(names) and all(row["site"] == site and not row["moving"] for row in rows)


def gap(mover: Mover, topic: str, since: int) -> float:
    """The longest pause between two deliveries from this number on."""
    at = [each.at for each in mover.received if each.topic == topic][since:]
    return max(after - before for before, after in pairwise(at))


async def run(
    made: Deployment, moves: int, version: int, qos: int, persistent: bool
) -> tuple[list[float], int, int]:
    """Move a client that publishes and subscribes; the gaps that it saw, and what changed its place."""
    name = f"behind-{version}-{qos}-{persistent}"
    mover = Mover(name, version, persistent)
    publisher, watcher = Mover(f"{name}-publisher", version), Mover(f"{name}-watcher", version)
    down, up = f"{name}/down", f"{name}/up"
    to_mover: list[bytes] = []
    from_mover: list[bytes] = []
    await publisher.connect(made.net.port("c"))
    await watcher.connect(made.net.port("c"), {up: qos})
    await mover.connect(made.gateway.port, {down: qos})
    load = [
        asyncio.create_task(publishing(publisher, down, qos, to_mover)),
        asyncio.create_task(publishing(mover, up, qos, from_mover)),
    ]
    here, gaps = made.gateway.ask("where", client=name)["site"], []
    for _ in range(moves):
        await until(arrived(mover, down, len(mover.payloads(down)) + 3))
        here, since = NAMES[(NAMES.index(here) + 1) % len(NAMES)], len(mover.payloads(down)) - 1
        result = await asyncio.wait_for(asyncio.to_thread(made.gateway.move, name, here), LIMIT)
        assert result == "done"
        await until(arrived(mover, down, since + 5))
        gaps.append(gap(mover, down, since))
    for task in load:
        task.cancel()
    await asyncio.gather(*load, return_exceptions=True)
    await until(lambda: not publisher.pending + mover.pending)
    await until(arrived(mover, down, len(to_mover)))
    await until(arrived(watcher, up, len(from_mover)))
    once_each(mover.payloads(down), to_mover, f"the client that moved, MQTT {version}, QoS {qos}")
    once_each(watcher.payloads(up), from_mover, f"who watched it, MQTT {version}, QoS {qos}")
    keeps({each.connection for each in mover.received} == {1}, "the client's connection ended")
    for client in (mover, publisher, watcher):
        client.close()
    return gaps, out_of_order(mover, down), out_of_order(watcher, up)


def moved(made: Deployment, moves: int, persistent: bool) -> None:
    kinds = ("moves_drained", "moves_late", "moves_nothing")
    before = {each: counted(made.net, each) for each in kinds}
    gaps: list[float] = []
    to_it = from_it = 0
    for version, qos in CLIENTS:
        seen, down, up = asyncio.run(run(made, moves, version, qos, persistent))
        gaps += seen
        to_it, from_it = to_it + down, from_it + up
    after = {each: counted(made.net, each) - count for each, count in before.items()}
    ends = statistics.quantiles(gaps, n=100)
    print(
        f"{len(gaps)} moves behind a gateway: 0 lost, 0 doubled, {to_it} to the clients and {from_it} from "
        f"them out of order; gap "
        f"{1000 * statistics.median(gaps):.1f} ms at the median, {1000 * ends[98]:.1f} ms at 99 %, "
        f"{1000 * max(gaps):.1f} ms at most; {after}"
    )
    assert after == {"moves_drained": len(gaps), "moves_late": 0, "moves_nothing": 0}


@pytest.mark.parametrize("persistent", [False, True])
def test_a_client_that_is_moved_misses_nothing_and_gets_nothing_twice_in_order(
    deployment: Deployment, persistent: bool
) -> None:
    moved(deployment, SHORT, persistent)


def test_many_clients_are_moved_at_once(deployment: Deployment) -> None:
    async def talk() -> None:
        names = [f"crowd-{number}" for number in range(CROWD)]
        movers = [Mover(name) for name in names]
        publisher = Mover("crowd-publisher")
        await publisher.connect(deployment.net.port("c"))
        for mover in movers:
            await mover.connect(deployment.gateway.port, {"crowd": 1})
        here = deployment.gateway.ask("where", client=names[0])["site"]
        sent: list[bytes] = []
        load = asyncio.create_task(publishing(publisher, "crowd", 1, sent))
        for _ in range(2):
            here = NAMES[(NAMES.index(here) + 1) % len(NAMES)]
            for name in names:
                await asyncio.to_thread(deployment.gateway.ask, "move", client=name, site=here)
            await until(partial(all_at, deployment.gateway, set(names), here))
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        await until(lambda: not publisher.pending)
        for mover in movers:
            await until(arrived(mover, "crowd", len(sent)))
            once_each(mover.payloads("crowd"), sent, "one of many that were moved at once")
        for client in (*movers, publisher):
            client.close()

    asyncio.run(talk())


@pytest.mark.slow
def test_a_thousand_moves_behind_a_gateway(deployment: Deployment) -> None:
    for persistent in (False, True):
        moved(deployment, LONG, persistent)

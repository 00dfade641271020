"""A storm: many clients of one gateway are moved to another site, so many at once, under load.

Owns who is moved when, and for whom there is load. Four of five clients subscribe, each to a topic of its
own, the fifth publishes. Only those that move soon, move, or have just moved get and send messages, so that
each sees many while it moves and the load of the machine stays bounded. Invariant: never are more moves under
way than was asked for. Must not know: what the logs mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from brokerweave.bench.folder import (
    LOAD,
    RECEIVES,
    SENDS,
    Measurement,
    RunEvent,
    RunFolder,
    Times,
    log_writer,
)
from brokerweave.bench.load.driver import Progress
from brokerweave.bench.migration import records
from brokerweave.bench.migration.deployment import MigrationDeployment, wait_for
from brokerweave.bench.migration.network import region_network
from brokerweave.bench.migration.playing import counted, run_moves
from brokerweave.bench.migration.procedures import NO_POLICY, Procedure
from brokerweave.bench.migration.scenario import CENTRAL, WEST, MigrationGroup, RegionSite, round_trip
from brokerweave.bench.migration.storm_load import StormLoad
from brokerweave.bench.resources import Sampler
from brokerweave.errors import Unavailable

OLD, NEW = RegionSite("west-1", WEST), RegionSite("central", CENTRAL)
GROUP = MigrationGroup("storm", WEST, "storm")
AROUND = 5
"""Clients before and after those that move, for which there is load, too."""
GRACE = 0.020
"""Seconds of the bound for whatever is no round trip."""
_SETTLE = 1.0
_QUIET = 3.0
_POLL = 0.002
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class StormOptions:
    clients: int
    at_once: int
    qos: int
    rate: float
    """Messages a second of all together."""

    @property
    def name(self) -> str:
        return f"storm, {self.at_once} at once"

    @property
    def crowd(self) -> int:
        """Clients that have load at one time."""
        return min(self.clients, self.at_once + 2 * AROUND)

    @property
    def interval(self) -> float:
        """Seconds between two messages of one of them."""
        return self.crowd / self.rate


def bound_ms(options: StormOptions) -> float:
    """Of the median gap: a round trip between the sites, one from the gateway to the new site, 20 ms; and the
    time between two messages, which is part of what a subscriber sees."""
    way = round_trip(OLD.region, NEW.region) + round_trip(GROUP.region, NEW.region)
    return 1000 * (way + GRACE + options.interval)


def storm(options: StormOptions, folder: RunFolder, show: Progress) -> Measurement:
    with ExitStack() as stack:
        show("making the regions")
        network = stack.enter_context(region_network([CENTRAL, WEST], round_trip))
        deployment = MigrationDeployment(network, Procedure.PLANNED, NO_POLICY, "steady")
        stack.enter_context(deployment)
        deployment.prepare([NEW, OLD])
        show("starting sites, the controller and a gateway")
        for site in (NEW, OLD):
            deployment.start_site(site.name)
        deployment.start_controller()
        deployment.start_gateways([GROUP])
        number, path = folder.begin_measurement()
        show(f"connecting {options.clients:,} clients")
        (gateway,) = deployment.gateways.values()
        ports = {
            WEST: (gateway.host, gateway.port),
            CENTRAL: (deployment.sites[NEW.name].node.host, deployment.sites[NEW.name].node.port),
        }
        load = StormLoad(options.clients, options.qos, options.interval, network, ports)
        stack.callback(load.close)
        done = _measured(options, deployment, load, number, path, show)
    folder.end_measurement(done)
    return done


def _measured(
    options: StormOptions,
    deployment: MigrationDeployment,
    load: StormLoad,
    number: int,
    path: Path,
    show: Progress,
) -> Measurement:
    servers = deployment.servers()
    pids = {f"{each.name}/{role}": pid for each in servers for role, pid in each.pids.items()}
    processes = Sampler({**pids, **load.pids(LOAD)})
    begin = time.monotonic_ns()
    processes.start()
    thread = threading.Thread(target=load.run, daemon=True)
    thread.start()
    try:
        _move_all(options, deployment, load, show)
    finally:
        load.finish(_QUIET)
        thread.join(_PATIENCE)
        processes.stop()
    if load.failure:
        raise Unavailable(load.failure)
    if faults := deployment.tracebacks():
        raise Unavailable(f"an accident in {', '.join(faults)}")
    end = time.monotonic_ns()
    processes.write(path / "resources.arrow")
    _keep(path, deployment, load, begin)
    found = Measurement(
        id=number,
        name=options.name,
        rate=options.rate,
        interval_s=options.interval,
        times=Times(0.0, (end - begin) / 1e9, 0.0),
        window_ns=(begin, end),
        servers=tuple(servers),
        events=(RunEvent(begin, f"0: {options.clients} clients move, {options.at_once} at once"),),
    )
    return counted(found, path)


def _keep(path: Path, deployment: MigrationDeployment, load: StormLoad, begin: int) -> None:
    """The logs, as those of any run."""
    for name, schema, table in (
        ("sends", SENDS, load.log.sends()),
        ("receives", RECEIVES, load.log.receives()),
    ):
        with log_writer(path / f"{name}-0.arrow", schema) as writer:
            writer.write_table(table)
    records.write(path, "moves", run_moves(deployment.moves(), load.label))
    records.write(path, "sites", [])
    records.write(path, "clients", load.clients(begin))


def _move_all(
    options: StormOptions, deployment: MigrationDeployment, load: StormLoad, show: Progress
) -> None:
    everybody = load.movers()

    def all_known() -> bool:
        rows = deployment.ask_controller("sites")["sites"]
        return bool(sum(row["clients"] for row in rows if row["site"] == OLD.name) >= len(everybody))

    wait_for(all_known, "the controller to know all clients")
    load.light(everybody[: options.crowd])
    time.sleep(_SETTLE)  # so that each has a stream before it moves
    for place, client in enumerate(everybody):
        _wait_for_room(deployment, options.at_once)
        load.light(lit(everybody, place, options))
        deployment.ask_controller("move", client=f"{load.label}-{client}", site=NEW.name)
        if place % 20 == 0:
            show(f"{place:,} of {len(everybody):,} clients have moved, or move")
    _wait_for_room(deployment, 1)
    time.sleep(_SETTLE)


def lit(everybody: Sequence[int], place: int, options: StormOptions) -> list[int]:
    """Those that have just moved, that move, and that move next."""
    first = max(place - options.at_once - AROUND + 1, 0)
    return list(everybody[first : place + AROUND + 1])


def _wait_for_room(deployment: MigrationDeployment, at_once: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while deployment.ask_controller("status")["under_way"] >= at_once:
        if time.monotonic() > deadline:
            raise Unavailable(f"moves did not end within {_PATIENCE:g} s")
        time.sleep(_POLL)

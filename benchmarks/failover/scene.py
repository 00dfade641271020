"""Four sites behind HAProxy, and a load in front: who is started, killed and started again, and when.

Owns the processes. Invariants: a killed site loses its broker, its node and the node's disk in one moment;
the next one is killed only when all sites are ready again, and say that what they keep has all its copies.
Must not know: what is counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.failover.account import Kill
from benchmarks.failover.client import Address
from benchmarks.failover.load import LoadSpec
from benchmarks.failover.record import Record
from brokerweave.errors import Unavailable
from brokerweave.lab.balancer import Balancer, served
from brokerweave.lab.broker import HOST, answers_mqtt, free_port
from brokerweave.lab.broker import Broker as Process
from brokerweave.lab.debian import Mosquitto
from brokerweave.lab.node import LabNode

PATIENCE = 60.0
SETTLE_SECONDS = 5.0
"""Before the first kill: hundreds of clients have just connected, and what piled up meanwhile goes first."""
DRAIN_SECONDS = 2.0
"""How long a site that ends in good order goes on serving, while the balancer takes its clients away."""
Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. `rate` is publications a second in all; times are seconds."""

    strategy: str = "sf"
    sites: int = 4
    topics: int = 200
    subscribers: int = 1
    """A topic."""
    rate: float = 2000.0
    publish_qos: int = 1
    subscribe_qos: int = 1
    persistent: bool = False
    delivery: str = "cluster"
    """For strategies other than `mesh`, which implies it."""
    kills: int = 3
    at_once: int = 1
    copies: int = 2
    calm: float = 3.0
    """Before each kill, with all sites ready."""
    watched: float = 4.0
    """After each kill, before what was killed is started again."""
    how: str = "site"
    """What ends: a whole `site`, at once and with its disk; its `broker` alone; its `node` alone, which keeps
    its disk; or the site in good order (`drain`). Or its node stands still (`stall`) and then goes on."""


class _Broker(Mosquitto):
    def __init__(self, host: str, inside: Sequence[str]) -> None:
        super().__init__(config=("max_queued_messages 100000", "set_tcp_nodelay true"))
        self.host = host
        self._inside = inside

    def command(self) -> list[str]:
        return [*self._inside, *super().command()]

    def ready(self) -> bool:
        return answers_mqtt(self.port, host=self.host)


class _Node(LabNode):
    def __init__(self, inside: Sequence[str], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._inside = inside

    def command(self) -> list[str]:
        return [*self._inside, *super().command()]


class Site:
    """`inside` is a command that starts another one where `host` is an address of this machine; `join` has
    the addresses of other members."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        others: Sequence[Site],
        host: str = HOST,
        inside: Sequence[str] = (),
        member: str = "",
        join: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.host = host
        self.holders = plan.copies - 1 if plan.strategy == "mesh" else 0
        self.health_port = free_port()
        self.member = member or f"{host}:{free_port()}"
        self.join = join or [site.member for site in others]
        self.broker = _Broker(host, inside)
        nodes = tuple(site.node for site in others) if plan.strategy != "mesh" else ()
        self.node: LabNode = _Node(
            inside,
            name,
            self.broker.port,
            nodes,
            strategy=plan.strategy,
            settings=self._settings(plan),
        )
        self.node.host = host

    def _settings(self, plan: Plan) -> Settings:
        settings: dict[str, dict[str, object]] = {
            "node": {"health": f"{self.host}:{self.health_port}"},
            "links": {"reconnect_min": 0.05, "reconnect_max": 0.5},
        }
        if plan.how == "drain":
            settings["limits"] = {"drain_notice": DRAIN_SECONDS}
        if plan.strategy == "mesh":
            key = self.broker.directory / "key"
            key.write_text("the key that all members share\n")
            settings["membership"] = {"bind": self.member, "join": self.join, "key_file": str(key)}
            settings["mesh"] = {"copies": plan.copies}
        else:
            settings["node"]["delivery"] = plan.delivery
        return settings

    def start(self) -> None:
        self.broker.start()
        self.node.start()

    def end(self, how: str) -> None:
        """At once, and without waiting for the end."""
        if how == "drain":
            os.kill(self.node.pid, signal.SIGTERM)
            return
        if how == "stall":
            self.node.pause()
            return
        for process in self._ended_by(how):
            os.killpg(process.pid, signal.SIGKILL)

    def _ended_by(self, how: str) -> tuple[Process, ...]:
        return {"broker": (self.broker,), "node": (self.node,)}.get(how, (self.node, self.broker))

    def bury(self, how: str) -> None:
        """What is left of it: the disk of a killed site goes as well."""
        if how == "stall":
            self.node.resume()
            return
        for process in self._ended_by(how):
            process.stop(kill=how != "drain" or process is self.broker)
        if how in ("site", "drain"):
            shutil.rmtree(self.node.directory / "data", ignore_errors=True)

    def is_whole(self) -> bool:
        """Whether every record has its copies, and no client is being claimed."""
        care = self.node.status().get("care")
        return care is None or (len(care["holders"]) == self.holders and not care["claiming"])

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.health_port}/", timeout=2) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def close(self) -> None:
        self.node.close()
        self.broker.close()


class Scene:
    """All of it, running."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sites: list[Site] = []
        self._seen = 0
        members = [f"{HOST}:{free_port()}" for _ in range(plan.sites)]
        for number, member in enumerate(members):
            others = [other for other in members if other != member]
            name = chr(ord("a") + number)
            self.sites.append(Site(name, plan, tuple(self.sites), member=member, join=others))
        servers = [served(site.name, site.node.port, site.health_port) for site in self.sites]
        self.balancer = Balancer(servers, slow_start=1.0)

    def start(self) -> None:
        for site in self.sites:
            site.start()
        self.balancer.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        for site in self.sites:
            site.node.wait_for_links(self.plan.sites - 1, PATIENCE)
        _wait(lambda: all(site.is_ready() for site in self.sites), "all sites ready")
        _wait(lambda: all(site.is_whole() for site in self.sites), "all copies made")

    def kill(self, number: int) -> Kill:
        """Kill the next sites in turn, so that each has gathered clients; wait, and start them again."""
        begin = number * self.plan.at_once
        chosen = [self.sites[(begin + each) % len(self.sites)] for each in range(self.plan.at_once)]
        at = time.monotonic()
        for site in chosen:
            site.end(self.plan.how)
        time.sleep(self.plan.watched)
        until = time.monotonic()
        for site in chosen:
            site.bury(self.plan.how)
            site.start()
        return Kill(tuple(site.name for site in chosen), at, until)

    def marked_down(self, but: Sequence[str]) -> list[str]:
        """What HAProxy said, since it was last asked, of nodes that it held for dead; but not of these."""
        lines = self.balancer.log_tail(100_000).splitlines()
        said = [line for line in lines[self._seen :] if " is DOWN" in line]
        self._seen = len(lines)
        return [line for line in said if not any(f"nodes/{name} " in line for name in but)]

    def close(self) -> None:
        self.balancer.close()
        for site in self.sites:
            site.close()


def run(plan: Plan, said: Callable[[str], None] = lambda _: None) -> tuple[Record, list[Kill]]:
    """The whole plan. Raises `Unavailable` if something that is not killed fails."""
    scene = Scene(plan)
    try:
        scene.start()
        said("sites are up; clients connect")
        with loaded(plan, [(HOST, scene.balancer.port)]) as (load, out):
            kills = []
            time.sleep(SETTLE_SECONDS)
            for number in range(plan.kills):
                time.sleep(plan.calm)
                kills.append(scene.kill(number))
                scene.wait_until_ready()
                said(f"killed {' and '.join(kills[-1].nodes)}, {number + 1} of {plan.kills}")
                for line in scene.marked_down(kills[-1].nodes):
                    said(line)
                if load.poll() is not None:
                    raise Unavailable(f"the load ended with {load.returncode}")
            time.sleep(plan.calm)
            assert load.stdin is not None
            load.stdin.close()
            if load.wait(2 * PATIENCE):
                raise Unavailable(f"the load ended with {load.returncode}")
            for site in scene.sites:
                look_for_accidents(site.node)
            return Record.read(out), kills
    finally:
        scene.close()


@contextlib.contextmanager
def loaded(plan: Plan, addresses: Sequence[Address]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.TemporaryDirectory(prefix="brokerweave-failover-") as folder:
        out = Path(folder) / "record.json"
        spec = LoadSpec(
            addresses=addresses,
            out=str(out),
            rate=plan.rate,
            topics=plan.topics,
            subscribers=plan.subscribers,
            publish_qos=plan.publish_qos,
            subscribe_qos=plan.subscribe_qos,
            persistent=plan.persistent,
        )
        command = [sys.executable, "-m", "benchmarks.failover.load", json.dumps(asdict(spec))]
        here = Path(__file__).resolve().parents[2]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=here) as load:
            try:
                assert load.stdout is not None
                if load.stdout.readline() != b"ready\n":
                    raise Unavailable("the load's clients could not all connect")
                yield load, out
            finally:
                load.kill()


def look_for_accidents(node: LabNode) -> None:
    """Raises `Unavailable` if a node has logged a traceback."""
    if "Traceback" in node.log_tail(100_000):
        raise Unavailable(f"node {node.id} had an accident: {node.log_tail(40)}")


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Unavailable(f"{what} did not come true in {PATIENCE:g} s")
        time.sleep(0.05)

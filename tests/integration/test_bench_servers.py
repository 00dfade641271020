"""Edge servers with quotas: joined in every way they deliver, they are held, and nothing of them stays."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from brokerweave.bench.folder import RunFolder, Times
from brokerweave.bench.load.driver import measure
from brokerweave.bench.network import own_network
from brokerweave.bench.quota import Quotas, all_in_place, group_of
from brokerweave.bench.resources import cpu_seconds
from brokerweave.bench.scenario import ClientGroup, Kill, Place, Scenario
from brokerweave.bench.servers import serving
from brokerweave.errors import Unavailable
from tests.support.verdicts import keeps
from tests.support.waiting import wait_until

TIMES = Times(0.3, 1, 0.2)


def two(join: str) -> Scenario:
    groups = (
        ClientGroup("a", "t1", 2, 1),
        ClientGroup("b", "t1", 1, 2),
        ClientGroup("b", "t6", 1, 1, latency=True),
    )
    return Scenario("two", (Place("a", quota=0.15), Place("b", quota=0.15)), groups, TIMES, join=join)


@pytest.mark.parametrize("join", ["pf", "sf", "mesh", "bridges"])
def test_two_sites_deliver_all_to_all_and_are_gone_afterwards(tmp_path: Path, join: str) -> None:
    with serving(two(join)) as target:
        roles = {"broker"} if join == "bridges" else {"broker", "node"}
        assert [set(server.pids) for server in target.servers] == [roles, roles]
        done = measure(two(join), target, RunFolder(tmp_path))
    counters = done.counters
    keeps((counters.lost, counters.doubled, counters.disordered) == (0, 0, 0), counters)
    assert counters.expected >= counters.sent * 3 > 0
    for pid in target.processes.values():
        assert not Path(f"/proc/{pid}").exists()
    assert not list(
        Path("/sys/fs/cgroup/cpu").rglob(f"brokerweave-bench-{next(iter(target.processes.values()))}")
    )


def test_clients_of_a_place_that_is_killed_come_back_elsewhere_and_miss_nothing(tmp_path: Path) -> None:
    groups = (ClientGroup("a", "t1", 2, 1), ClientGroup("b", "t1", 1, 1), ClientGroup("c", "t1", 1, 1))
    scenario = Scenario(
        "killed",
        (Place("a"), Place("b"), Place("c")),
        groups,
        Times(0.5, 5, 0.5),
        qos=2,
        subscriber_qos=2,
        join="mesh",
        kills=(Kill("c", 1.0),),
    )
    with serving(scenario) as target:
        done = measure(scenario, target, RunFolder(tmp_path))
    (event,) = done.events
    assert event.what == "killed c"
    assert done.window_ns[0] + 1e9 <= event.at_ns < done.window_ns[1]
    assert done.counters.acknowledged == done.counters.sent
    keeps(done.counters.lost == 0, done.counters)


def _share_of(pid: int) -> float:
    """Of a core, as the group that the process is in has it."""
    files = (group_of(pid) / f"cpu.cfs_{each}_us" for each in ("quota", "period"))
    quota, period = (int(file.read_text()) for file in files)
    return quota / period


def test_haproxy_stands_in_front_with_the_same_quota(tmp_path: Path) -> None:
    place = Place("a", quota=0.1, front="haproxy")
    scenario = Scenario("one", (place,), (ClientGroup("a", "t1", 1, 1),), TIMES)
    with serving(scenario) as target:
        assert set(target.servers[0].pids) == {"broker", "haproxy"}
        if target.servers[0].quota is not None:
            all_in_place()  # whoever manages the machine's groups may have moved them
            held = {_share_of(pid) for pid in target.servers[0].pids.values()}
            assert held == {0.1}
        done = measure(scenario, target, RunFolder(tmp_path))
    keeps(done.counters.lost == 0, done.counters)
    assert done.counters.sent > 0


def test_a_held_process_uses_no_more_than_its_share() -> None:
    pid = os.fork()
    if pid == 0:
        while True:
            pass
    try:
        with Quotas() as quotas:
            quotas.hold(pid, 0.1)
            if quotas.impossible:
                pytest.skip(quotas.impossible)
            first = cpu_seconds(pid)
            wait_until(lambda: cpu_seconds(pid) > first, "a turn within its share")
            used, began = cpu_seconds(pid), time.monotonic()
            wait_until(lambda: cpu_seconds(pid) >= used + 0.1, "a tenth of a second of CPU")
            share = (cpu_seconds(pid) - used) / (time.monotonic() - began)
        assert share < 0.15
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_process_that_was_taken_out_of_its_group_is_noticed_even_if_the_group_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process, Quotas() as quotas:
        try:
            quotas.hold(process.pid, 0.1)
            if quotas.impossible:
                pytest.skip(quotas.impossible)
            assert quotas.in_place()
            group = group_of(process.pid)
            (group.parent / "cgroup.procs").write_text(str(process.pid))
            assert not quotas.in_place()
            assert quotas.in_place()  # it was put back
            (group.parent / "cgroup.procs").write_text(str(process.pid))
            wait_until(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
            group.rmdir()
            assert not quotas.in_place()
        finally:
            process.kill()


def test_servers_have_a_loopback_of_their_own_and_we_have_ours_again_afterwards() -> None:
    def here() -> str:
        return os.readlink("/proc/self/ns/net")

    before, said = here(), list[str]()
    with own_network(said.append):
        if said:
            pytest.skip(said[0])
        assert here() != before
        listener = socket.create_server(("127.0.0.1", 0))
        with listener, socket.create_connection(listener.getsockname(), timeout=5):
            routes = subprocess.run(
                ["ip", "route", "show", "table", "local"], capture_output=True, text=True, check=True
            )
            assert all("initcwnd" in line for line in routes.stdout.splitlines() if "local 127" in line)
    assert here() == before


def test_a_network_carries_no_more_than_its_bandwidth_and_drops_nothing() -> None:
    megabits, size = 16.0, 2_000_000
    try:
        with own_network(bandwidth=megabits):
            begun = time.monotonic()
            assert _carried(size) == size
            assert size * 8 / (time.monotonic() - begun) < megabits * 1e6 * 1.1
    except Unavailable as error:
        pytest.skip(str(error))


def _carried(size: int) -> int:
    """How many of so many bytes come out at the other end of a connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname(), timeout=60) as one:
        other, _ = listener.accept()
        other.settimeout(20)
        with other, ThreadPoolExecutor(1) as pool:
            sent = pool.submit(one.sendall, bytes(size))
            got = 0
            while got < size and (data := other.recv(65_536)):
                got += len(data)
            sent.result()
    return got

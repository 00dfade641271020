"""Regions on one machine: a network namespace each, joined by the delaying relay (`router`).

Owns the namespaces and the relay's process. Whatever a thread starts inside a region is there: it is reached
from other regions at the region's address, later by half of the round trip, TCP and UDP alike. Nothing of the
machine's own network changes, and all of it is gone when the block ends. Needs Linux, root and `ip`. Must not
know: what is in a region.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from brokerweave.bench.migration.router import MTU, NET
from brokerweave.errors import Unavailable
from brokerweave.lab.broker import find_program

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DEVICE = "wan"
_OWN = "/proc/thread-self/ns/net"


@dataclass(frozen=True, slots=True)
class EmulatedRegion:
    name: str
    host: str
    """Its address, of all that is in it."""
    namespace: int
    tun: int

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread connects and starts within the block, it does from there."""
        before = os.open(_OWN, os.O_RDONLY)
        try:
            _call("setns", self.namespace, _CLONE_NEWNET)
            yield
        finally:
            _call("setns", before, _CLONE_NEWNET)
            os.close(before)


def missing() -> str | None:
    """Why there can be no regions here, in one line."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "emulated regions need root on Linux"
    if find_program("ip") is None:
        return "ip is not installed (iproute2)"
    try:
        with _regions(["probe"]):
            return None
    except (OSError, subprocess.SubprocessError) as error:
        return f"this machine allows no network namespaces with TUN devices: {error}"


class RegionNetwork:
    def __init__(self, regions: Sequence[EmulatedRegion], router: subprocess.Popen[str]) -> None:
        self._regions = {each.name: each for each in regions}
        self._router = router
        self.router_pid = router.pid
        self.counts: dict[str, int] = {}
        """What the relay passed and dropped; known when the block has ended."""

    def __getitem__(self, name: str) -> EmulatedRegion:
        return self._regions[name]

    def end(self) -> None:
        try:
            said, _ = self._router.communicate(timeout=10)  # ends its input
            self.counts = json.loads(said or "{}")
        except subprocess.TimeoutExpired:
            self._router.kill()
            self._router.wait(10)


@contextmanager
def region_network(names: Sequence[str], round_trip: Callable[[str, str], float]) -> Iterator[RegionNetwork]:
    """Raises `Unavailable` where it cannot be made."""
    with ExitStack() as stack:
        try:
            regions = stack.enter_context(_regions(names))
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"no emulated regions: {missing() or error}") from None
        delays = [[round_trip(one, other) / 2 for other in names] for one in names]
        told = json.dumps({"tuns": [each.tun for each in regions], "delays": delays})
        router = subprocess.Popen(
            [sys.executable, "-m", "brokerweave.bench.migration.router", told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[each.tun for each in regions],
            start_new_session=True,
        )
        network = RegionNetwork(regions, router)
        stack.callback(network.end)
        yield network


@contextmanager
def _regions(names: Sequence[str]) -> Iterator[list[EmulatedRegion]]:
    with ExitStack() as stack:
        before = os.open(_OWN, os.O_RDONLY)
        stack.callback(os.close, before)
        made = []
        for number, name in enumerate(names):
            try:
                _call("unshare", _CLONE_NEWNET)
                made.append(_region(name, f"{NET[0]}.{NET[1]}.{number + 1}.1", stack))
            finally:
                _call("setns", before, _CLONE_NEWNET)
        yield made


def _region(name: str, host: str, stack: ExitStack) -> EmulatedRegion:
    """Of the namespace in which this thread is now."""
    namespace = os.open(_OWN, os.O_RDONLY)
    stack.callback(os.close, namespace)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    stack.callback(_close, tun)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (
        "link set lo up",
        f"addr add {host}/32 dev {_DEVICE}",
        f"link set {_DEVICE} mtu {MTU} txqueuelen 10000 up",
        f"route add {NET[0]}.{NET[1]}.0.0/16 dev {_DEVICE}",
    ):
        subprocess.run(["ip", *words.split()], check=True, capture_output=True, timeout=20)
    return EmulatedRegion(name, host, namespace, tun)


def _close(file: int) -> None:
    with suppress(OSError):
        os.close(file)


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

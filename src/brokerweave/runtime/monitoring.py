"""The port at which a node answers the pings of gateways.

Owns the socket, and how busy the node says that it is. Must not know: who pings, what follows from it.
"""

from __future__ import annotations

import hmac
import secrets
import time

from brokerweave.config import MonitoringSection
from brokerweave.placement.responder import OpenResponder, Responder
from brokerweave.runtime.datagram_port import Address, DatagramPort

CPU_SECONDS = 2.0
"""The share of the CPU is worked out anew after at least so long."""


def monitoring_key(key: bytes) -> bytes:
    """The key of datagrams of gateways, controllers and monitoring: what is proved by one use of the
    cluster's key must prove nothing for another."""
    return hmac.digest(key, b"brokerweave monitoring", "sha256")


def draw_boot() -> int:
    """The random number of this process; 0 is nobody's."""
    return secrets.randbits(63) + 1


class CpuShare:
    """Of one CPU, used by this process lately."""

    def __init__(self) -> None:
        self._at, self._used, self._share = time.monotonic(), time.process_time(), 0.0

    def __call__(self) -> float:
        now, used = time.monotonic(), time.process_time()
        if now - self._at >= CPU_SECONDS:
            self._share = (used - self._used) / (now - self._at)
            self._at, self._used = now, used
        return self._share


class Monitoring:
    def __init__(self, section: MonitoringSection, key: bytes | None) -> None:
        """`key` is None where anybody may ping."""
        self._section = section
        self._port = DatagramPort()
        self._responder: Responder | OpenResponder
        if key is None:
            self._responder = OpenResponder(self._port.send)
        else:
            self._responder = Responder(monitoring_key(key), draw_boot(), self._port.send, CpuShare())

    async def start(self) -> None:
        """Raises `Unavailable` if the address cannot be used."""
        assert self._section.listen is not None
        await self._port.open(self._section.listen, "[monitoring] listen")
        self._port.serve(self._responder)

    @property
    def address(self) -> Address:
        return self._port.address

    def counters(self) -> dict[str, int]:
        refused = {f"monitoring_{cause}": count for cause, count in self._responder.refused.items()}
        return {"monitoring_answered": self._responder.answered, **refused}

    def close(self) -> None:
        self._port.close()

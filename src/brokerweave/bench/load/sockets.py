"""What the kernel tells of the load's own connections: the paper's checks for other bottlenecks (ILDM 5.3).

Linux only; where TCP_INFO is shorter or absent the figure is 0. Must not know: MQTT.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from pathlib import Path

_TOTAL_RETRANSMITS = 100
"""Where struct tcp_info has tcpi_total_retrans (32 bits), ..."""
_WINDOW_LIMITED = 176
"""... and tcpi_rwnd_limited (64 bits): microseconds in which the other side's window held us up."""


class SocketHealth:
    """Reads TCP_INFO of all sockets when asked for its result."""

    def __init__(self, socks: Sequence[socket.socket]) -> None:
        self._socks = socks

    def result(self) -> dict[str, float]:
        retransmitted, limited = 0, 0
        for sock in self._socks:
            try:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            except OSError:
                continue
            if len(info) >= _TOTAL_RETRANSMITS + 4:
                retransmitted += struct.unpack_from("=I", info, _TOTAL_RETRANSMITS)[0]
            if len(info) >= _WINDOW_LIMITED + 8:
                limited += struct.unpack_from("=Q", info, _WINDOW_LIMITED)[0]
        return {"retransmissions": retransmitted, "window_limited_s": limited / 1e6}


_ZERO_WINDOWS = ("TCPToZeroWindowAdv",)
_DROPS = ("TCPRcvQDrop", "TCPBacklogDrop", "ListenDrops", "TCPOFODrop", "PFMemallocDrop")


def machine_counts(path: Path = Path("/proc/net/netstat")) -> dict[str, int]:
    """Zero windows and local drops of the whole machine so far: on loopback they stand in for PAUSE
    frames."""
    found: dict[str, int] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found.update(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    return {
        "zero_windows": sum(found.get(name, 0) for name in _ZERO_WINDOWS),
        "drops": sum(found.get(name, 0) for name in _DROPS),
    }

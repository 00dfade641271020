"""What the kernel tells of connections: the paper's checks for other bottlenecks (ILDM 5.3).

Linux only; where TCP_INFO is shorter or absent the figure is 0. Must not know: MQTT.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_TOTAL_RETRANSMITS = 100
"""Where struct tcp_info has tcpi_total_retrans (32 bits)."""


def retransmissions(socks: Iterable[socket.socket]) -> int:
    """Segments that we sent again on these connections, by TCP_INFO."""
    found = 0
    for sock in socks:
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue
        if len(info) >= _TOTAL_RETRANSMITS + 4:
            found += struct.unpack_from("=I", info, _TOTAL_RETRANSMITS)[0]
    return found


_COUNTS: Mapping[str, Sequence[str]] = {
    "zero_windows": ("TCPToZeroWindowAdv",),
    "drops": ("TCPRcvQDrop", "TCPBacklogDrop", "ListenDrops", "TCPOFODrop", "PFMemallocDrop"),
    "retransmissions": ("RetransSegs",),
}


def machine_counts(folder: Path = Path("/proc/net")) -> dict[str, int]:
    """Zero windows, local drops and segments sent again, of the whole machine (or our own network) so far: of
    brokers, too. On loopback drops stand in for PAUSE frames."""
    found: dict[str, int] = {}
    for name in ("netstat", "snmp"):
        try:
            lines = (folder / name).read_text().splitlines()
        except OSError:
            lines = []
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            found.update(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    return {what: sum(found.get(name, 0) for name in names) for what, names in _COUNTS.items()}

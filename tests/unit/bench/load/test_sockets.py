"""What the kernel counts is found by its name, wherever it stands."""

from __future__ import annotations

from pathlib import Path

from brokerweave.bench.load.sockets import machine_counts


def test_windows_drops_and_retransmissions_of_the_machine_are_counted(tmp_path: Path) -> None:
    (tmp_path / "netstat").write_text(
        "TcpExt: ListenDrops TCPBacklogDrop TCPFromZeroWindowAdv TCPToZeroWindowAdv\n"
        "TcpExt: 1 2 9 4\nIpExt: InNoRoutes\nIpExt: 7\n"
    )
    (tmp_path / "snmp").write_text("Ip: Forwarding\nIp: 2\nTcp: MaxConn RetransSegs InErrs\nTcp: -1 5 9\n")
    assert machine_counts(tmp_path) == {"zero_windows": 4, "drops": 3, "retransmissions": 5}


def test_where_the_kernel_tells_nothing_nothing_is_counted(tmp_path: Path) -> None:
    assert machine_counts(tmp_path) == {"zero_windows": 0, "drops": 0, "retransmissions": 0}

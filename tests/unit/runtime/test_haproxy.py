"""HAProxy's configuration as text: what is in it, and what is refused before HAProxy sees it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from brokerweave.config import Address
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.runtime import haproxy
from brokerweave.runtime.haproxy import HaproxyOptions, HaproxyServer, configuration

OPTIONS = HaproxyOptions(Address("127.0.0.1", 1883))
A = HaproxyServer.parse("a=127.0.0.1:2001,127.0.0.1:3001")
B = HaproxyServer.parse("b=10.0.0.2:2002,10.0.0.9:3002")


@pytest.mark.parametrize(
    "line",
    [
        "mode tcp",
        "balance leastconn",
        "bind 127.0.0.1:1883",
        "option redispatch 1",
        "http-check expect status 200",
        "observe layer4 error-limit 10 on-error mark-down",
        "on-marked-down shutdown-sessions slowstart 5000ms",
    ],
)
def test_the_file_has_what_failover_needs(line: str) -> None:
    assert line in configuration([A], OPTIONS)


def test_each_node_is_asked_at_its_health_port() -> None:
    lines = configuration([B, A], OPTIONS).splitlines()
    assert [line.strip() for line in lines if line.startswith("    server ")] == [
        "server a 127.0.0.1:2001 port 3001",
        "server b 10.0.0.2:2002 addr 10.0.0.9 port 3002",
    ]


def test_the_order_of_the_nodes_changes_nothing() -> None:
    assert configuration([A, B], OPTIONS) == configuration([B, A], OPTIONS)


def test_a_bound_on_connections_is_written_only_when_it_is_given() -> None:
    assert "maxconn" not in configuration([A], OPTIONS)
    assert "    maxconn 77\n" in configuration([A], HaproxyOptions(OPTIONS.listen, max_connections=77))


def test_no_node_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no node"):
        configuration([], OPTIONS)


def test_two_nodes_of_one_id_are_an_error() -> None:
    with pytest.raises(ConfigError, match="node a is given twice"):
        configuration([A, HaproxyServer.parse("a=127.0.0.1:5,127.0.0.1:6")], OPTIONS)


@pytest.mark.parametrize(
    "text", ["a", "a=127.0.0.1:1", "=1:1,1:1", "a b=h:1,h:2", "a=h:1,h", "a=h:1,h:70000"]
)
def test_a_server_that_cannot_be_read_is_refused_with_what_was_given(text: str) -> None:
    with pytest.raises(ConfigError, match="--server"):
        HaproxyServer.parse(text)


def test_a_node_that_listens_everywhere_has_no_address_for_a_balancer() -> None:
    with pytest.raises(ConfigError, match="give --server a=HOST:PORT,HOST:PORT"):
        HaproxyServer.checked("a", Address("0.0.0.0", 1883), Address("127.0.0.1", 8080))


def test_a_node_without_health_port_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match='health = "HOST:PORT"'):
        HaproxyServer.checked("a", Address("127.0.0.1", 1883), None)


def test_without_haproxy_the_file_is_written_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy, "program", lambda: None)
    path = tmp_path / "haproxy.cfg"
    assert haproxy.write(path, "text\n") is False
    assert path.read_text() == "text\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(haproxy.program() is None, reason="haproxy is not installed")
def test_a_file_that_haproxy_refuses_never_takes_the_old_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "haproxy.cfg"
    assert haproxy.write(path, configuration([A, B], OPTIONS)) is True
    path.chmod(0o640)
    before = path.read_text()
    with pytest.raises(ConfigError, match="HAProxy refuses"):
        haproxy.write(path, before.replace("leastconn", "leastcon"))
    assert path.read_text() == before
    assert haproxy.write(path, configuration([A], OPTIONS)) is True
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haproxy, "program", lambda: None)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    haproxy.write(link, "text\n")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "text\n"


def test_a_reload_goes_to_the_process_that_the_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    (tmp_path / "pid").write_text("123\n")
    haproxy.reload_by_signal(str(tmp_path / "pid"))
    haproxy.reload_by_signal("456")
    assert sent == [(123, signal.SIGUSR2), (456, signal.SIGUSR2)]


@pytest.mark.parametrize("content", ["", "no number\n"])
def test_a_pid_file_without_a_number_is_said_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "pid").write_text(content)
    with pytest.raises(Unavailable, match="no process id is there"):
        haproxy.reload_by_signal(str(tmp_path / "pid"))


def test_a_reload_command_that_fails_says_what_it_said() -> None:
    haproxy.reload_by_command("true")
    with pytest.raises(Unavailable, match="not allowed"):
        haproxy.reload_by_command("sh -c 'echo not allowed >&2; exit 3'")

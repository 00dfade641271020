"""Links between nodes that break, stall and return: what was owed arrives, once and in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerweave.lab.broker import answers_mqtt, find_program, free_port
from brokerweave.lab.node import LabNode
from brokerweave.mqtt.packets import Connect as ConnectPacket
from brokerweave.mqtt.packets import Publish
from tests.integration.conftest import Connect
from tests.support.clients import MqttClient
from tests.support.proxy import Proxy
from tests.support.raw import RawClient
from tests.support.sites import QUICK, Network, Settings, merged, network
from tests.support.waiting import wait_until

TOPICS = ["cut/a", "cut/b", "cut/c"]


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[Network, Proxy]]:
    """a ──proxy── b"""
    with network([], alone=["a", "b"]) as net, Proxy(net.node("b").link_port) as proxy:
        net.link("a", "b", proxy.port)
        yield net, proxy


def state_of(status: dict[str, Any], neighbour: str) -> str:
    return next((row["state"] for row in status["links"] if row["neighbour"] == neighbour), "unknown")


# Who may link


def key_file(folder: Path, name: str, key: str) -> Settings:
    (folder / name).write_text(key)
    return {"node": {"key_file": str(folder / name)}}


def test_nodes_with_different_keys_refuse_each_other_and_both_say_why(tmp_path: Path) -> None:
    special = {name: key_file(tmp_path, name, name * 32) for name in ("a", "b")}
    with network([], alone=["a", "b"], special=special) as net:
        net.node("a").ask("add_neighbour", id="b", address=f"127.0.0.1:{net.node('b').link_port}")
        net.node("b").ask("add_neighbour", id="a", address=f"127.0.0.1:{net.node('a').link_port}")
        for name, other in (("a", "b"), ("b", "a")):
            node = net.node(name)
            wait_until(lambda n=node, o=other: "different keys" in n.link(o)["reason"], "a reason")  # type: ignore[misc]
            assert node.link(other)["state"] == "down"
            assert node.status()["counters"]["link_refusals"] >= 1


def test_a_node_without_the_key_is_refused_and_told_to_get_one(tmp_path: Path) -> None:
    with network([], alone=["a", "b"], special={"b": key_file(tmp_path, "b", "b" * 32)}) as net:
        net.node("a").ask("add_neighbour", id="b", address=f"127.0.0.1:{net.node('b').link_port}")
        wait_until(lambda: "give both the same key_file" in net.node("a").link("b")["reason"], "a reason")
        assert net.node("b").status()["counters"]["link_refusals"] >= 1


def test_status_says_why_a_neighbour_cannot_be_reached() -> None:
    with network([], alone=["a", "b"]) as net, socket.create_server(("127.0.0.1", 0)) as server:
        a, port = net.node("a"), server.getsockname()[1]
        a.ask("add_neighbour", id="mute", address=f"127.0.0.1:{port}")
        server.accept()[0].close()
        wait_until(lambda: "hung up before the handshake" in a.link("mute")["reason"], "a reason")
        server.close()
        wait_until(lambda: f"cannot reach 127.0.0.1:{port}" in a.link("mute")["reason"], "another reason")
        net.link("a", "b")
        assert a.link("b")["reason"] == ""


def test_two_nodes_of_one_id_are_noticed_by_the_node_whose_link_they_fight_for() -> None:
    with network([], alone=["a"]) as net:
        a = net.node("a")
        with LabNode("b", net["a"].broker.port, (a,)), LabNode("b", net["a"].broker.port, (a,)):
            a.wait_for(lambda s: any("two nodes have the id b" in w for w in s["warnings"]), "a warning")


def test_nodes_with_the_same_key_work_together(tmp_path: Path, connect: Connect) -> None:
    same = key_file(tmp_path, "key", "k" * 32)
    with network([("a", "b")], settings=merged(QUICK, same)) as net:
        carries(net, connect, "a", "b")


def carries(net: Network, connect: Connect, source: str, target: str) -> None:
    subscriber = connect(net.port(target))
    subscriber.subscribe("t", 1)
    net.settle()
    connect(net.port(source)).publish("t", b"1", qos=1)
    subscriber.wait_for_payload(b"1")


def certificate(folder: Path, name: str, authority: str) -> Settings:
    """A certificate that `authority` signed, made with openssl; both are new if they are not there yet."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    if not (folder / f"{authority}.pem").exists():
        subject = ["-subj", f"/CN={authority}", "-days", "2"]
        openssl("req", "-x509", *new, "-keyout", f"{authority}.key", "-out", f"{authority}.pem", *subject)
    openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    signer = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "2"]
    openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signer)
    files = {"tls_certificate": f"{name}.pem", "tls_key": f"{name}.key", "tls_ca": f"{authority}.pem"}
    return {"links": {key: str(folder / file) for key, file in files.items()}}


def test_links_run_over_mutual_tls_and_strangers_certificates_are_refused(
    tmp_path: Path, connect: Connect
) -> None:
    if not find_program("openssl"):
        pytest.skip("openssl is not installed")
    special = {name: certificate(tmp_path, name, "ours") for name in ("a", "b")}
    special["stranger"] = certificate(tmp_path, "stranger", "theirs")
    with network([("a", "b")], alone=["stranger", "plain"], special=special) as net:
        carries(net, connect, "a", "b")
        with Proxy(net.node("b").link_port) as witness:
            for name in ("stranger", "plain"):
                net.node(name).ask("add_neighbour", id="b", address=f"127.0.0.1:{witness.port}")
            wait_until(lambda: witness.accepted >= 8, "several attempts of both")
            stranger, plain = net.node("stranger"), net.node("plain")
            wait_until(lambda: "certificate" in stranger.link("b")["reason"].lower(), "a reason")
            wait_until(lambda: "hung up" in plain.link("b")["reason"], "a reason")
        assert [row["neighbour"] for row in net.node("b").status()["links"]] == ["a"]
        carries(net, connect, "b", "a")


# Links that break


@pytest.mark.parametrize("qos", [1, 2])
def test_a_link_that_is_cut_again_and_again_loses_doubles_and_moves_nothing(
    proxied: tuple[Network, Proxy], connect: Connect, qos: int
) -> None:
    net, proxy = proxied
    near, far = connect(net.port("a")), connect(net.port("b"))
    near.subscribe("cut/#", qos)
    far.subscribe("cut/#", qos)
    net.settle()
    publisher = connect(net.port("a"))
    count, broken = 0, 0
    while broken < 12 and count < 3000:
        for _ in range(20):
            for topic in TOPICS:
                publisher.publish_all(topic, [b"%d" % count], qos)
            count += 1
        broken += proxy.cut()
    expected = [b"%d" % number for number in range(count)]
    near.wait_for(lambda received: len(received) >= count * 3)
    far.wait_for(lambda received: len(received) >= count * 3)
    for topic in TOPICS:
        assert near.payloads(topic) == expected
        assert far.payloads(topic) == expected
    assert broken >= 12
    assert not near.ended.is_set()
    net.wait_for_links()


@pytest.mark.parametrize("qos", [0, 1])
def test_retained_and_other_messages_of_one_topic_stay_in_order(
    proxied: tuple[Network, Proxy], connect: Connect, qos: int
) -> None:
    net, _ = proxied
    far = connect(net.port("b"))
    topic = f"mixed/{qos}"
    far.subscribe(topic, 1)
    net.settle()
    with RawClient(net.port("a")) as publisher:
        mixed = [Publish(topic, b"%d" % n, qos, n % 3 == 0, packet_id=n * qos) for n in range(1, 101)]
        publisher.send(ConnectPacket("mixer"))
        publisher.read_packets(1)
        publisher.send(*mixed)  # in one piece, which a node reads in one piece
        far.wait_for(lambda received: len(received) >= 100)
    assert far.payloads() == [message.payload for message in mixed]


def test_a_neighbour_may_be_removed_and_added_in_the_middle_of_traffic(connect: Connect) -> None:
    with network([("b", "a"), ("b", "c")]) as net:
        far, stays = connect(net.port("b")), connect(net.port("c"))
        far.subscribe("busy/#")
        stays.subscribe("busy/#")
        net.settle()
        done = threading.Event()

        def flood() -> None:
            publisher, count = MqttClient(net.port("b")), 0
            while not done.is_set():
                publisher.publish(f"busy/{count % 7}", b"%d" % count, qos=count % 2, retain=count % 11 == 0)
                count += 1
            publisher.publish("busy/end", b"end", qos=1)
            publisher.close()

        flooding = threading.Thread(target=flood)
        flooding.start()
        for turn in range(1, 6):
            stays.wait_for(lambda received, turn=turn: len(received) > 50 * turn)  # type: ignore[misc]
            net.node("a").ask("remove_neighbour", id="b")
            net.node("b").wait_for(lambda status: len(status["links"]) == 1, "the removal")
            net.node("a").ask("add_neighbour", id="b", address=f"127.0.0.1:{net.node('b').link_port}")
            net.wait_for_links()
        done.set()
        flooding.join(20)
        stays.wait_for_payload(b"end")
        for topic in (f"busy/{n}" for n in range(7)):
            numbers = [int(payload) for payload in stays.payloads(topic)]
            assert numbers == list(range(numbers[0], numbers[-1] + 1, 7))  # its own link was never touched


def test_a_neighbour_that_stalls_is_noticed_and_owed_no_more_than_memory_allows(connect: Connect) -> None:
    small = {"links": {"outbox_memory": 65_536}}
    with network([("a", "b")], settings=merged(QUICK, small)) as net:
        far, near = connect(net.port("b")), connect(net.port("a"))
        far.subscribe("t/#", 1)
        near.subscribe("t/#", 1)
        net.settle()
        net.node("b").pause()
        net.node("a").wait_for(lambda status: state_of(status, "b") == "down", "noticing that b stalls", 10)
        publisher = connect(net.port("a"))
        publisher.publish("t/owed", b"owed", qos=1)
        publisher.publish_all("t/flood", [bytes(4096)] * 200, qos=0)
        near.wait_for(lambda received: len(received) == 201)  # local clients notice nothing
        status = net.node("a").status()
        assert net.node("a").link("b")["backlog_bytes"] <= 2 * 65_536
        assert sum(status["drops"].values()) >= 200 - 2 * 65_536 // 4096
        net.node("b").resume()
        net.wait_for_links()
        far.wait_for_payload(b"owed")


def test_interest_outlives_a_client_that_will_come_back_and_its_messages_wait(
    proxied: tuple[Network, Proxy], connect: Connect
) -> None:
    net, _ = proxied
    away = connect(net.port("b"), "traveller", clean=False)
    away.subscribe("home/#", 1)
    net.settle()
    away.close()
    net.node("b").wait_for(lambda status: status["sessions"]["open"] == 0, "the traveller's leave")
    publisher = connect(net.port("a"))
    publisher.publish("home/news", b"1", qos=1)
    publisher.publish("home/news", b"2", qos=1)
    back = connect(net.port("b"), "traveller", clean=False)
    assert back.session_present
    publisher.publish("home/news", b"3", qos=1)
    back.wait_for_payload(b"3")
    assert back.payloads() == [b"1", b"2", b"3"]
    back.close()
    connect(net.port("b"), "traveller", clean=True).close()  # which ends the session, and the interest
    wait_until(lambda: net.node("a").link("b")["filters_from"] == 0, "the end of the interest")


# Stopping, starting, reloading


def test_sigterm_lets_go_of_clients_and_still_delivers_what_is_owed(connect: Connect) -> None:
    patient = {"links": {"ping_interval": 5}}
    with network([], alone=["a", "b"], settings=patient) as net, Proxy(net.node("b").link_port) as proxy:
        net.link("a", "b", proxy.port)
        far = connect(net.port("b"))
        far.subscribe("t", 1)
        net.settle()
        publisher = connect(net.port("a"), version=5)
        proxy.stall()
        publisher.publish_all("t", [b"%d" % n for n in range(100)], qos=1)
        os.kill(net.node("a").pid, signal.SIGTERM)
        assert publisher.ended.wait(10)
        assert net.node("a").running
        proxy.resume()
        wait_until(lambda: not net.node("a").running, "the end of a")
        far.wait_for(lambda received: len(received) >= 100)
        assert far.payloads() == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_what_a_node_owes_outlives_its_own_restart(connect: Connect, kill: bool) -> None:
    with network([("a", "b")]) as net:
        far = connect(net.port("b"), "far", clean=False)
        far.subscribe("t", 1)
        net.settle()
        net.node("b").stop()
        publisher = connect(net.port("a"))
        publisher.publish_all("t", [b"%d" % n for n in range(50)], qos=1)
        assert net.node("a").link("b")["backlog_messages"] == 50
        net.node("a").restart(kill=kill)
        net.node("b").start()
        back = connect(net.port("b"), "far", clean=False)
        back.wait_for(lambda received: len(received) >= 50)
        connect(net.port("a")).publish("t", b"end", qos=1)
        back.wait_for_payload(b"end")
        assert back.payloads() == [*(b"%d" % n for n in range(50)), b"end"]


def test_a_killed_node_still_knows_what_absent_clients_want(connect: Connect) -> None:
    with network([("a", "b")]) as net:
        far = connect(net.port("b"), "far", clean=False)
        far.subscribe("t", 1)
        net.settle()
        net.node("b").stop(kill=True)
        connect(net.port("a")).publish("t", b"owed", qos=1)
        net.node("b").start()
        net.wait_for_links()
        back = connect(net.port("b"), "far", clean=False)
        back.wait_for_payload(b"owed")


def test_a_killed_node_passes_on_what_it_is_owed_for_a_neighbour_that_is_not_back_yet(
    connect: Connect,
) -> None:
    with network([("a", "b"), ("b", "c")]) as net:
        far = connect(net.port("c"), "far", clean=False)
        far.subscribe("t", 1)
        net.settle()
        net.node("b").stop(kill=True)
        connect(net.port("a")).publish("t", b"owed", qos=1)
        net.node("c").stop()
        net.node("b").start()
        net.node("a").wait_for(lambda status: state_of(status, "b") == "up", "the return of b")
        net.node("c").start()
        back = connect(net.port("c"), "far", clean=False)
        back.wait_for_payload(b"owed")


def test_sighup_takes_neighbours_and_limits_from_the_file_and_ignores_one_with_a_mistake(
    connect: Connect,
) -> None:
    with network([], alone=["a", "b"]) as net:
        node = net.node("a")
        file = node.config_file
        before = file.read_text()
        more = f'[[neighbour]]\nid = "b"\naddress = "127.0.0.1:{net.node("b").link_port}"\n'
        file.write_text(f"{before}[limits]\nmax_connections = 1\n{more}")
        os.kill(node.pid, signal.SIGHUP)
        node.wait_for_links(1)
        connect(node.port)
        with pytest.raises((AssertionError, OSError)):
            connect(node.port)
        file.write_text(f"{before}[limits]\nmax_conections = 9\n")
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: "did you mean 'max_connections'" in node.log_tail(), "a complaint")
        assert state_of(node.status(), "b") == "up"
        file.write_text(before)
        os.kill(node.pid, signal.SIGHUP)
        for each, other in (("a", "b"), ("b", "a")):
            net.node(each).wait_for(lambda s, o=other: state_of(s, o) == "unknown", "removal")  # type: ignore[misc]


# The command line


def brokerweave(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "brokerweave", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_an_operator_sees_and_changes_a_running_node_from_the_command_line() -> None:
    with network([], alone=["a", "b"]) as net:
        where = ("--config", str(net.node("a").config_file))
        added = brokerweave("neighbours", "add", f"b=127.0.0.1:{net.node('b').link_port}", *where)
        assert (added.returncode, added.stderr) == (0, "")
        net.node("a").wait_for_links(1)
        listed = json.loads(brokerweave("neighbours", "list", "--json", *where).stdout)
        assert [row["neighbour"] for row in listed["neighbours"]] == ["b"]
        status = json.loads(brokerweave("status", "--json", *where).stdout)
        assert status["node"]["id"] == "a"
        assert status["links"][0]["state"] == "up"
        assert "up" in brokerweave("status", *where).stdout
        removed = brokerweave("neighbours", "remove", "b", *where)
        assert removed.returncode == 0
        net.node("b").wait_for(lambda status: status["links"] == [], "the removal on the other side")


def test_check_shows_every_value_and_where_it_came_from() -> None:
    with network([], alone=["a"]) as net:
        file = net.node("a").config_file
        shown = brokerweave("node", str(file), "--check", "--links-qos", "2")
        assert shown.returncode == 0
        rows = {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines() if "." in line}
        assert rows["node.id"][0] == "a"
        assert rows["links.qos"] == ["2", "--links-qos"]
        assert rows["links.order"] == ["topic", "default"]


def test_a_mistake_in_the_configuration_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nid = "a"\nlisten = "127.0.0.1:1"\nbrocker = "127.0.0.1:2"\n')
    failed = brokerweave("node", str(file))
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "did you mean 'broker'?" in failed.stderr


def test_a_port_that_is_taken_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with network([], alone=["a"]) as net:
        file = tmp_path / "node.toml"
        file.write_text(
            f'[node]\nid = "z"\nlisten = "127.0.0.1:{net.port("a")}"\nbroker = "127.0.0.1:9"\n'
            f'data_dir = "{tmp_path}/data"\nadmin_socket = "{tmp_path}/admin.sock"\nlog_level = "error"\n'
        )
        failed = brokerweave("node", str(file))
        assert failed.returncode == 1
        assert failed.stderr.count("\n") == 1
        assert f"127.0.0.1:{net.port('a')} cannot be used" in failed.stderr


def test_a_node_that_is_told_to_stop_ends_with_0(tmp_path: Path) -> None:
    with network([], alone=["a"]) as net:
        broker, port = net["a"].broker.port, free_port()
        flags = ["--id", "y", "--listen", f"127.0.0.1:{port}", "--broker", f"127.0.0.1:{broker}"]
        paths = ["--data-dir", str(tmp_path / "data"), "--admin-socket", str(tmp_path / "admin.sock")]
        command = [sys.executable, "-m", "brokerweave", "node", *flags, *paths]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: answers_mqtt(port), "the node to serve")
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 0
            finally:
                process.kill()

"""Messages that a real broker refuses: put aside, looked at, retried and dropped with the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from brokerweave.lab.node import LabNode
from tests.integration.conftest import Connect
from tests.support.sites import network, start_broker
from tests.support.waiting import wait_until


def letters_of(node: LabNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ask("dead_letters")["letters"]
    return found


def command(node: LabNode, *arguments: str) -> str:
    line = [
        sys.executable,
        "-m",
        "brokerweave",
        "dead-letters",
        *arguments,
        "--config",
        str(node.config_file),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_letter_is_retried_until_its_broker_takes_it(connect: Connect) -> None:
    """Mosquitto's own list denies the node a topic, until an operator changes the list."""
    broker = start_broker("mosquitto", acl="topic read #\ntopic write ok\n")
    try:
        with network([("a", "b")], brokers={"b": broker}) as net:
            node = net.node("b")
            subscriber = connect(net.port("b"))
            subscriber.subscribe("#", 1)
            publisher = connect(net.port("a"))
            publisher.publish("not/ok", "grüße", 1)
            wait_until(lambda: len(letters_of(node)) == 1, "a dead letter")
            (listed,) = json.loads(command(node, "ls", "--json"))["letters"]
            assert (listed["topic"], listed["qos"]) == ("not/ok", 1)
            shown = command(node, "show", str(listed["id"]))
            assert [word for word in ("not/ok", "7 bytes, as text:", "grüße") if word not in shown] == []

            assert command(node, "retry", str(listed["id"])) == "retried 1\n"
            wait_until(lambda: [each["id"] for each in letters_of(node)] == [listed["id"] + 1], "its return")
            publisher.publish("ok", b"holds up nothing", 1)
            subscriber.wait_for_payload(b"holds up nothing")

            Path(broker.directory, "acl").write_text("topic #\n")
            os.kill(broker.pid, signal.SIGHUP)
            probe = connect(broker.port, version=5)  # the list counts once the broker has read it
            wait_until(lambda: _delivered(probe, subscriber), "the broker's new list")
            assert command(node, "retry", "all") == "retried 1\n"
            subscriber.wait_for_payload("grüße".encode())
            assert letters_of(node) == []
            assert node.status()["counters"]["dead_letters_retried"] == 2
    finally:
        broker.close()


def _delivered(probe: Any, subscriber: Any) -> bool:
    probe.publish("any/topic", b"is allowed now")
    return b"is allowed now" in subscriber.payloads("any/topic")


def test_poison_for_nats_is_put_aside_and_can_be_dropped(connect: Connect) -> None:
    broker = start_broker("nats")
    try:
        with network([("a", "b")], brokers={"b": broker}, strategy="pf") as net:
            node = net.node("b")
            subscriber = connect(net.port("b"))
            subscriber.subscribe("t/#", 1)
            publisher = connect(net.port("a"))
            for topic in ("with.dot", "with space"):
                publisher.publish(topic, b"poison", 1)
            publisher.publish("t/1", b"goes on", 1)
            subscriber.wait_for_payload(b"goes on")
            wait_until(lambda: len(letters_of(node)) == 2, "two dead letters")
            assert {letter["topic"] for letter in letters_of(node)} == {"with.dot", "with space"}
            assert all(letter["reason"] for letter in letters_of(node))
            assert command(node, "drop", "all") == "dropped 2\n"
            assert letters_of(node) == []
    finally:
        broker.close()

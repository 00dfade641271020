"""Filters and clients that come and go leave no object behind, at their node and at its neighbour."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

from brokerweave.mqtt.packets import Disconnect, UnsubAck, Unsubscribe
from tests.unit.node.network import Client, Network

COUNT = 1_000


def linked() -> Network:
    net = Network()
    net.add("a", "b")
    net.link("a", "b")
    net.settle()
    return net


def kept(net: Network, a_round: Callable[[str], None]) -> int:
    """Blocks of memory in use after a second round, beyond those after a first."""

    def in_use() -> int:
        net.advance(5_000)
        net.settle()
        for node in net.nodes.values():
            node.written.clear()
        gc.collect()
        return sys.getallocatedblocks()

    a_round("first")
    before = in_use()
    a_round("second")
    return in_use() - before


def test_filters_that_are_gone_leave_nothing_at_a_node_and_its_neighbour() -> None:
    net = linked()
    client = Client(net, "a", "client")

    def a_round(name: str) -> None:
        names = [f"site/{name}/{number}/+" for number in range(COUNT)]
        for topic_filter in names:
            client.subscribe(topic_filter, 1)
        net.settle()
        assert net.nodes["b"].core.strategy.describe("a")["filters_from"] == COUNT
        client._send(Unsubscribe(1, tuple(names)))
        client.broker(UnsubAck(1))
        net.settle()

    assert kept(net, a_round) < COUNT / 10


def test_clients_that_are_gone_leave_nothing_at_a_node_and_its_neighbour() -> None:
    net = linked()

    def a_round(name: str) -> None:
        for number in range(COUNT):
            client = Client(net, "a", f"{name}-{number}", clean_start=number % 2 == 0)
            client.subscribe(f"client/{name}/{number}/#", 1)
            net.settle()
            client._send(Disconnect())
            client.end()
        for number in range(1, COUNT, 2):
            Client(net, "a", f"{name}-{number}", clean_start=True).end()
        net.settle()

    assert kept(net, a_round) < COUNT / 10


def test_many_filters_that_were_there_at_once_leave_no_large_tables_behind() -> None:
    net = linked()
    client = Client(net, "a", "client")
    names = [f"site/{number}" for number in range(COUNT)]
    ours = tracemalloc.Filter(True, "*/brokerweave/*")
    trie = tracemalloc.Filter(
        False, "*/trie.py"
    )  # on whose account the interpreter remakes a table of its own

    def size() -> int:
        gc.collect()
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours, trie]).traces)

    tracemalloc.start()
    try:
        before = size()
        for topic_filter in names:
            client.subscribe(topic_filter, 1)
        net.settle()
        there = size() - before
        client._send(Unsubscribe(1, tuple(names[1:])))  # an empty table would be too easy
        client.broker(UnsubAck(1))
        net.settle()
        left = size() - before
    finally:
        tracemalloc.stop()
    assert net.nodes["b"].core.strategy.describe("a")["filters_from"] == 1
    assert left < there / 20

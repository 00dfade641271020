"""Filters and clients that come and go, many of them: a node and its neighbour keep nothing of them."""

from __future__ import annotations

from benchmarks.churn import churn

from tests.support.sites import network

FILTERS = 20_000


def test_a_node_and_its_neighbour_forget_filters_and_clients_that_are_gone() -> None:
    with network([("a", "b")]) as net:
        # `python -m benchmarks.churn` does the same with a million filters and 10,000 connections.
        for growth in churn(net.node("a"), net.node("b"), FILTERS, 300):
            # Each filter's name alone would be more than this, if it were kept.
            assert max(*growth.rounds, growth.clients) - growth.before < FILTERS * 100, growth

"""A node without its sockets: what it does with a clock that is set."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from brokerweave.config import load
from brokerweave.runtime.node import Node


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(
        load(None, {"node.id": "a", "node.listen": "127.0.0.1:1883", "node.broker": "127.0.0.1:1884"})
    )
    monkeypatch.setattr(made, "call_later", lambda seconds, callback: None)
    return made


@dataclass
class Steps:
    heard: list[float] = field(default_factory=list)

    def clock_set(self, step: float) -> None:
        self.heard.append(step)


def test_the_edge_log_hears_of_a_clock_that_was_set(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    node.recording = steps  # type: ignore[assignment]
    node._follow_clock()
    assert steps.heard == []
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600.0)
    node._follow_clock()
    assert [round(step) for step in steps.heard] == [3600]

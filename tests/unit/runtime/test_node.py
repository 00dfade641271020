"""A node without its sockets: what it does with errors that nobody caught, and with a clock that is set."""

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


@pytest.mark.parametrize("key", ["transport", "protocol"])
def test_a_connections_odd_end_is_no_internal_error(node: Node, key: str) -> None:
    node._loop_failed({"message": "Fatal error", "exception": OSError(110, "timed out"), key: object()})
    assert (node.internal_errors, node.warnings) == (0, [])


def test_an_error_of_the_system_in_a_timer_is_an_internal_error(node: Node) -> None:
    node._loop_failed({"message": "Exception in callback", "exception": OSError(24, "Too many open files")})
    assert node.internal_errors == 1
    assert "Too many open files" in node.warnings[0]


def test_no_descriptor_for_a_new_connection_is_a_warning(node: Node) -> None:
    error = OSError(24, "Too many open files")
    node._loop_failed({"message": "socket.accept()", "exception": error, "socket": object()})
    assert (node.internal_errors, len(node.warnings)) == (0, 1)


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

"""Whether a node is ready, and the few lines of HTTP that say so."""

from __future__ import annotations

import asyncio

import pytest

from brokerweave.runtime import health
from brokerweave.runtime.health import NodeHealth, answer

GET = b"GET / HTTP/1.0\r\nHost: a\r\n\r\n"


def started(broker: bool = True) -> NodeHealth:
    made = NodeHealth(lambda: broker)
    made.started = True
    return made


def test_a_started_node_with_a_broker_is_ready() -> None:
    assert started().reason == ""


def test_a_node_that_starts_is_not_asked_for_its_broker() -> None:
    def too_early() -> bool:
        raise AssertionError("there is no core yet")

    assert NodeHealth(too_early).reason == "starting"


def test_a_site_without_its_broker_is_not_ready() -> None:
    assert started(broker=False).reason == "broker down"


def test_a_node_that_gathers_what_clients_are_owed_is_not_ready_until_it_has_it() -> None:
    made, busy = started(), [True]
    made.ready = lambda: not busy[0]
    assert made.reason == "recovering"
    busy[0] = False
    assert made.reason == ""


def test_draining_counts_more_than_anything_else() -> None:
    made = started(broker=False)
    made.draining = True
    assert made.reason == "draining"


@pytest.mark.parametrize("method", [b"GET", b"OPTIONS"])
def test_a_ready_node_answers_200_with_its_length(method: bytes) -> None:
    head, _, body = answer(method + b" /any HTTP/1.1\r\n\r\n", "").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 6\r\n" in head
    assert body == b"ready\n"


def test_a_node_that_is_not_ready_answers_503_with_the_reason() -> None:
    found = answer(GET, "broker down")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert found.endswith(b"\r\n\r\nbroker down\n")


def test_head_gets_no_body() -> None:
    found = answer(b"HEAD / HTTP/1.0\r\n\r\n", "draining")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert found.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_", [b"\x10\x0f\x00\x04MQTT\n\n", b"POST / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n"]
)
def test_what_is_no_question_is_refused_though_the_node_is_ready(request_: bytes) -> None:
    assert answer(request_, "").startswith(b"HTTP/1.1 400 ")


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def caller(node: NodeHealth) -> tuple[health._Caller, Transport]:
    made, transport = health._Caller(node, node._callers), Transport()
    made.connection_made(transport)
    return made, transport


async def test_a_question_in_single_bytes_is_answered_once() -> None:
    made, transport = caller(started())
    for byte in GET:
        made.data_received(bytes((byte,)))
    made.connection_lost(None)
    assert transport.written.count(b"HTTP/1.1 200") == 1
    assert transport.closed


async def test_a_question_without_end_is_ended() -> None:
    made, transport = caller(started())
    made.data_received(b"GET /" + b"a" * health.MAX_REQUEST + b" HTTP/1.1\r\n")
    made.connection_lost(None)
    assert transport.written.startswith(b"HTTP/1.1 431 ")
    assert transport.closed


async def test_one_caller_too_many_is_hung_up_on_and_room_comes_back() -> None:
    node = started()
    callers = [caller(node) for _ in range(health.MAX_CALLERS)]
    assert not any(transport.closed for _, transport in callers)
    extra, transport = caller(node)
    assert transport.closed
    extra.connection_lost(None)
    callers[0][0].connection_lost(None)
    late, transport = caller(node)
    assert not transport.closed
    for made, _ in [*callers[1:], (late, transport)]:
        made.connection_lost(None)
    assert not node._callers

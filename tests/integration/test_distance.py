"""The distance that tests and the demo put between two places."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from brokerweave.lab.broker import HOST
from brokerweave.lab.distance import Distance
from tests.support.waiting import LIMIT

ONE_WAY = 0.02


@pytest.fixture
def distance() -> Iterator[Distance]:
    with Distance(ONE_WAY) as made:
        yield made


def echo_one(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(65_536):
            connection.sendall(data)


def test_a_connection_gets_its_bytes_back_unchanged_and_no_sooner_than_a_round_trip_after(
    distance: Distance,
) -> None:
    payload = bytes(range(256)) * 20_000
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=echo_one, args=(server,), daemon=True).start()
        with socket.create_connection((HOST, distance.tcp(server.getsockname()[1])), timeout=LIMIT) as end:
            begin = time.monotonic()
            sending = threading.Thread(target=end.sendall, args=(payload,), daemon=True)
            sending.start()
            got = end.recv(65_536)
            assert time.monotonic() - begin >= 2 * ONE_WAY
            while len(got) < len(payload):
                got += end.recv(65_536)
            assert got == payload


def test_a_connection_to_nobody_ends(distance: Distance) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    to_nobody = socket.create_connection((HOST, distance.tcp(port)), timeout=LIMIT)
    with to_nobody, contextlib.suppress(ConnectionResetError):
        assert to_nobody.recv(1) == b""


def test_datagrams_and_their_answers_take_the_same_way(distance: Distance) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
    ):
        far.bind((HOST, 0))
        for each in (far, near):
            each.settimeout(LIMIT)
        begin = time.monotonic()
        near.sendto(b"ping", (HOST, distance.udp(far.getsockname()[1])))
        data, source = far.recvfrom(100)
        assert data == b"ping"
        far.sendto(b"pong", source)
        assert near.recv(100) == b"pong"
        assert time.monotonic() - begin >= 2 * ONE_WAY

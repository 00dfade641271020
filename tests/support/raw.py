"""Bytes on a socket, for what no client library does: both sides of an MQTT connection, by hand.

Owns sockets and, for `FakeBroker`, threads. Invariants: every wait is bounded. Must not know: nodes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
)
from brokerweave.mqtt.scanner import Frame, Scanner

HOST = "127.0.0.1"
TIMEOUT = 10.0

_EVERY_TYPE = 0xFFFE


class RawClient:
    def __init__(self, port: int, *, receive_buffer: int | None = None, source: str = HOST) -> None:
        self.socket = socket.socket()
        self.socket.bind((source, 0))
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        try:
            self.socket.connect((HOST, port))
        except OSError:
            self.socket.close()
            raise

    def send(self, *packets: Packet, version: int = 4) -> None:
        self.socket.sendall(b"".join(codec.encode(packet, version) for packet in packets))

    def read_packets(self, count: int) -> bytes:
        """The bytes of the next packets."""
        data = b""
        for _ in range(count):
            head = self._exactly(1)
            length = shift = 0
            while True:
                head += self._exactly(1)
                length |= (head[-1] & 0x7F) << shift
                shift += 7
                if not head[-1] & 0x80:
                    break
            data += head + self._exactly(length)
        return data

    def read_to_end(self) -> bytes:
        """Everything until the other side closes. `TimeoutError` if it does not."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                data += piece
        return data

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"closed after {data!r}")
            data += piece
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeBroker:
    """Accepts and acknowledges everything and delivers nothing, unless `instead` has another answer.

    `instead` gives a packet, bytes as they are, or None for the ordinary answer.
    """

    def __init__(self, instead: Callable[[Packet], Packet | bytes | None] = lambda packet: None) -> None:
        self._instead = instead
        self.answered: list[Packet] = []
        """The packets that it has sent an answer to, of all connections."""
        self._heard: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def heard_from(self, client_id: str) -> bytes:
        """All that the client with this id sent; empty as long as it did not come."""
        return next((bytes(heard) for heard in self._heard if client_id.encode() in heard[:100]), b"")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._sockets.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        heard = bytearray()
        self._heard.append(heard)
        scanner, version = Scanner(_EVERY_TYPE, 1 << 20), 4
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                heard += data
                for frame in scanner.feed(data)[1]:
                    assert isinstance(frame, Frame)
                    packet = codec.decode(frame.data, version)
                    version = packet.version if isinstance(packet, Connect) else version
                    answer = self._instead(packet) or _ordinary(packet)
                    if answer:
                        connection.sendall(
                            answer if isinstance(answer, bytes) else codec.encode(answer, version)
                        )
                        self.answered.append(packet)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _ordinary(packet: Packet) -> Packet | None:
    match packet:
        case Connect():
            return ConnAck()
        case Subscribe():
            return SubAck(packet.packet_id, tuple(each.qos for each in packet.subscriptions))
        case Publish(qos=1):
            return PubAck(packet.packet_id)
        case Publish(qos=2):
            return PubRec(packet.packet_id)
        case PubRel():
            return PubComp(packet.packet_id)
        case PingReq():
            return PingResp()
    return None

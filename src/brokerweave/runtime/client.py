"""A small MQTT client for the probe and for tests: one connection, every packet visible.

Owns one TCP connection and its packet ids. Invariants: every wait is bounded by `timeout`; what arrives is
acknowledged at once, so a broker never waits for us. It does not reconnect, resend or ping (keep-alive is
off unless asked for). Must not know: nodes, links, what the answers mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Self, TypeVar

from brokerweave.config import BrokerAddress
from brokerweave.errors import RemoteProtocolError, Unavailable
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import Frame, Scanner
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from brokerweave.mqtt.properties import Properties, Property, Value
from brokerweave.runtime.dialing import open_streams
from brokerweave.session import proxy_header

AnyPacket = TypeVar("AnyPacket", bound=Packet)

_EVERY_TYPE = 0xFFFE
_READ = 65_536


class ConnectRefused(Unavailable):
    """The broker answered CONNECT with a refusal."""

    def __init__(self, reason_code: int) -> None:
        super().__init__(f"the broker refused the connection with code 0x{reason_code:02x}")
        self.reason_code = reason_code


class Client:
    """One MQTT connection. Make it with `connect`; `async with` ends it with a DISCONNECT.

    What arrives for subscriptions waits in `messages`, everything else in `answers`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.version = version
        self.timeout = 5.0
        self.connack = ConnAck()
        self.messages: asyncio.Queue[Publish] = asyncio.Queue()
        self.answers: asyncio.Queue[Packet] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.close_reason = "the connection was closed"
        self._writer = writer
        self._scanner = Scanner(_EVERY_TYPE, 1 << 28)
        self._packet_id = 0
        self._unreleased: set[int] = set()
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def connect(
        cls,
        address: BrokerAddress,
        *,
        version: int = 4,
        client_id: str | None = None,
        clean_start: bool = True,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties = (),
        timeout: float = 5.0,
        proxied: bool = False,
    ) -> Self:
        """Connect and wait for CONNACK. Raises `ConnectRefused`, or `Unavailable` if there is no sound
        answer."""
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await open_streams(address)
        except (OSError, TimeoutError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise Unavailable(f"cannot reach a broker at {address}: {why}") from None
        client = cls(reader, writer, version)
        client.timeout = timeout
        packet = Connect(
            # 23 characters at most: MQTT 3.1 brokers may refuse more.
            client_id=f"bw-{secrets.token_hex(8)}" if client_id is None else client_id,
            version=version,
            clean_start=clean_start,
            keep_alive=keep_alive,
            username=username,
            password=password,
            will=will,
            properties=properties,
        )
        try:
            if proxied:
                writer.write(proxy_header.own(writer.get_extra_info))
            client.send(packet)
            client.connack = await client.answer(ConnAck)
            if client.connack.reason_code:
                raise ConnectRefused(client.connack.reason_code)
        except BaseException:
            await client.abort()
            raise
        return client

    def property(self, wanted: Property) -> Value | None:
        """A property of the broker's CONNACK."""
        return dict(self.connack.properties).get(wanted)

    def send(self, packet: Packet) -> None:
        self._writer.write(codec.encode(packet, self.version))

    async def answer(self, kind: type[AnyPacket], packet_id: int | None = None) -> AnyPacket:
        """The next answer of this kind (to this packet id); others before it are dropped."""
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    packet = await self.next_answer()
                    if isinstance(packet, kind) and packet_id in (None, getattr(packet, "packet_id", None)):
                        return packet
        except TimeoutError:
            raise Unavailable(f"no {kind.__name__} within {self.timeout:g} s") from None

    async def next_answer(self) -> Packet:
        """The next packet that is no message; `Unavailable` if the connection ends or none comes in time."""
        getting = asyncio.ensure_future(self.answers.get())
        ended = asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait({getting, ended}, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            raise Unavailable(self.close_reason if ended.done() else f"no answer within {self.timeout:g} s")
        finally:
            getting.cancel()
            ended.cancel()

    async def message(self, timeout: float | None = None) -> Publish | None:
        """The next message, or None if none comes in time."""
        try:
            async with asyncio.timeout(self.timeout if timeout is None else timeout):
                return await self.messages.get()
        except TimeoutError:
            return None

    def next_id(self) -> int:
        self._packet_id = self._packet_id % 0xFFFF + 1
        return self._packet_id

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties = (),
    ) -> int:
        """Publish, finish the acknowledgement, and give the broker's reason code (0 at QoS 0)."""
        packet_id = self.next_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if qos == 0:
            with contextlib.suppress(OSError):
                await self._writer.drain()
            return 0
        if qos == 1:
            return (await self.answer(PubAck, packet_id)).reason_code
        received = await self.answer(PubRec, packet_id)
        if received.reason_code < 0x80:
            self.send(PubRel(packet_id))
            await self.answer(PubComp, packet_id)
        return received.reason_code

    async def subscribe(self, *filters: str | Subscription, qos: int = 0) -> tuple[int, ...]:
        """Subscribe, and give the granted QoS (or the refusal's code) for each filter."""
        packet_id = self.next_id()
        wanted = (one if isinstance(one, Subscription) else Subscription(one, qos) for one in filters)
        self.send(Subscribe(packet_id, tuple(wanted)))
        return (await self.answer(SubAck, packet_id)).reason_codes

    async def disconnect(self, packet: Disconnect | None = None) -> None:
        """Say goodbye and close."""
        if not self.closed.is_set():
            self.send(packet or Disconnect())
        self._writer.close()
        await self._finish()

    async def abort(self) -> None:
        """Cut the connection without a word, as a crash would."""
        self._writer.transport.abort()
        await self._finish()

    async def _finish(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.timeout):
                await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while self._scanner.error is None and (chunk := await reader.read(_READ)):
                for item in self._scanner.feed(chunk)[1]:
                    if isinstance(item, Frame):
                        self._take(codec.decode(item.data, self.version))
            if self._scanner.error is not None:
                raise self._scanner.error
        except RemoteProtocolError as error:
            self.close_reason = f"the broker broke the protocol: {error}"
        except OSError as error:
            self.close_reason = f"the connection failed: {error.strerror or error}"
        finally:
            self.closed.set()

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._take_message(packet)
        elif isinstance(packet, PubRel):
            self._unreleased.discard(packet.packet_id)
            self.send(PubComp(packet.packet_id))
        else:
            if isinstance(packet, Disconnect):
                self.close_reason = f"the broker disconnected with code 0x{packet.reason_code:02x}"
            self.answers.put_nowait(packet)

    def _take_message(self, packet: Publish) -> None:
        if packet.qos == 1:
            self.send(PubAck(packet.packet_id))
        elif packet.qos == 2:
            self.send(PubRec(packet.packet_id))
            if packet.packet_id in self._unreleased:  # a repeat of one that we have [MQTT-4.3.3-10]
                return
            self._unreleased.add(packet.packet_id)
        self.messages.put_nowait(packet)

"""The probe's experiments: each asks a broker one question with connections and topics of its own.

Invariants: every wait is bounded by the connection's timeout; an experiment clears what it retained and
ends the sessions it kept; it raises `Unavailable` where the broker closes the connection or falls silent.
Must not know: what the verdicts are for, which maker's broker it talks to.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from brokerweave.config import BrokerAddress
from brokerweave.errors import Unavailable
from brokerweave.mqtt.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel, Subscription, Will
from brokerweave.mqtt.properties import Property
from brokerweave.runtime.client import Client, ConnectRefused

T = TypeVar("T")
F = TypeVar("F")

VERSION_NAMES = {3: "3.1", 4: "3.1.1", 5: "5"}

# 3.1.1's "unacceptable protocol version", and the same of MQTT 5.
_WRONG_VERSION = (0x01, 0x84)

# Sizes of whole packets to try where a broker declares none. The last one is where we stop asking.
_SIZES = (4 * 1024, 16 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024, 4 * 1024 * 1024)

# Seconds for the delivery, to the publisher itself, of what the broker has acknowledged: a node waits for it.
_OWN_DELIVERY = 1.0

# Topics that MQTT allows and some brokers do not; {} is a name of our own.
ODD_TOPICS = {
    "space": "{}/a b",
    "dot": "{}/a.b",
    "leading slash": "/{}",
    "trailing slash": "{}/",
    "empty level": "{}//a",
    "unicode": "{}/é温度",
    "star": "{}/a*",
    "greater-than": "{}/a>",
    "colon": "{}/a:b",
}


class Bench:
    """One broker under test: opens connections to it and names topics that nobody else uses."""

    def __init__(
        self,
        address: BrokerAddress,
        username: str | None,
        password: bytes | None,
        timeout: float,
        proxied: bool = False,
    ) -> None:
        self.version = 5
        self.qos = 1
        self._address = address
        self._options = {
            "username": username,
            "password": password,
            "timeout": timeout,
            "keep_alive": 60,
            "proxied": proxied,
        }

    def open(self, **options: Any) -> Coroutine[Any, Any, Client]:
        return Client.connect(self._address, **{"version": self.version, **self._options, **options})

    @contextlib.asynccontextmanager
    async def lasting(self) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Client]]]:
        """Opens connections of one session that outlives each of them, and ends it at last."""
        client_id = f"bw-{secrets.token_hex(8)}"
        kept = ((Property.SESSION_EXPIRY_INTERVAL, 60),) if self.version == 5 else ()
        try:
            yield lambda: self.open(client_id=client_id, clean_start=False, properties=kept)
        finally:
            async with await self.open(client_id=client_id):
                pass  # a clean start ends the session that was kept

    @staticmethod
    def topic() -> str:
        return f"brokerweave-probe/{secrets.token_hex(6)}"


async def tried(experiment: Callable[[Bench], Awaitable[T]], bench: Bench, failed: F) -> T | F:
    """An experiment's verdict; `failed` if the broker closed the connection or fell silent, twice.

    Twice, since some brokers lose a connection now and then for no reason that a client could see.
    """
    for _ in range(2):
        with contextlib.suppress(Unavailable):
            return await experiment(bench)
    return failed


async def open_highest(bench: Bench) -> Client:
    failure = Unavailable("the broker speaks no version of MQTT that we know")
    for version in (5, 4, 3):
        try:
            return await bench.open(version=version)
        except ConnectRefused as error:
            if error.reason_code not in _WRONG_VERSION:
                raise
            failure = error
        except Unavailable as error:
            # Closing without an answer is how many brokers refuse a version.
            failure = error
    raise failure


async def versions_spoken(bench: Bench) -> tuple[int, ...]:
    spoken = []
    for version in VERSION_NAMES:
        try:
            async with await bench.open(version=version):
                spoken.append(version)
        except Unavailable:
            continue
    return tuple(spoken)


async def highest_qos(bench: Bench) -> int:
    for qos in (2, 2, 1, 1):  # each twice, as in `tried`
        try:
            async with await bench.open() as client:
                wanted = PubRec if qos == 2 else PubAck
                if isinstance(await _answer_to_publish(client, bench.topic(), qos), wanted):
                    return qos
        except Unavailable:
            continue
    return 0


async def _answer_to_publish(client: Client, topic: str, qos: int) -> Packet:
    """Publish, finish QoS 2's four steps if the broker begins them, and give its first answer."""
    packet_id = client.next_id()
    client.send(Publish(topic, b"probe", qos, packet_id=packet_id))
    first = await client.next_answer()
    if isinstance(first, PubRec) and first.reason_code < 0x80:
        client.send(PubRel(packet_id))
        await client.answer(PubComp, packet_id)
    return first


async def fate_of_qos2(bench: Bench) -> str:
    """Is a publication that is repeated after a lost connection delivered once [MQTT-4.3.3-10]?"""
    topic = bench.topic()
    async with bench.lasting() as reconnect, await bench.open() as watcher:
        await watcher.subscribe(topic, qos=2)
        publisher = await reconnect()
        packet = Publish(topic, b"probe", 2, packet_id=publisher.next_id())
        publisher.send(packet)
        try:
            answer = await publisher.next_answer()
        finally:
            await publisher.abort()
        if not isinstance(answer, PubRec):
            return f"answers {type(answer).__name__.upper()}"
        if answer.reason_code >= 0x80:
            return f"refused with 0x{answer.reason_code:02x}"
        try:
            async with await reconnect() as publisher:
                publisher.send(replace(packet, dup=True))
                await publisher.answer(PubRec, packet.packet_id)
                publisher.send(PubRel(packet.packet_id))
                await publisher.answer(PubComp, packet.packet_id)
        except Unavailable:
            return "a repeat is not answered"
        return await _qos2_seen(watcher)


async def _qos2_seen(watcher: Client) -> str:
    message = await watcher.message()
    if message is None:
        return "taken, but does not arrive"
    if message.qos < 2:
        return f"taken, arrives at QoS {message.qos}"
    again = await watcher.message(timeout=watcher.timeout / 4)
    return "exactly once" if again is None else "repeats arrive twice"


async def granted_qos(bench: Bench) -> int | None:
    async with await bench.open() as client:
        (code,) = await client.subscribe(bench.topic(), qos=2)
        return code if code < 0x80 else None


async def retains_for_exact(bench: Bench) -> bool:
    topic = bench.topic()
    return await _retained(bench, topic, topic)


async def retains_for_wildcard(bench: Bench) -> bool:
    topic = bench.topic()
    return await _retained(bench, f"{topic}/a/b", f"{topic}/#")


async def _retained(bench: Bench, topic: str, topic_filter: str) -> bool:
    async with await bench.open() as publisher:
        await publisher.publish(topic, b"probe", bench.qos, retain=True)
        try:
            async with await bench.open() as late:
                await late.subscribe(topic_filter)
                message = await late.message()
                return message is not None and message.retain
        finally:
            await publisher.publish(topic, b"", bench.qos, retain=True)


async def publishes_wills(bench: Bench) -> bool:
    topic = bench.topic()
    async with await bench.open() as watcher:
        await watcher.subscribe(topic)
        mortal = await bench.open(will=Will(topic, b"probe"))
        await mortal.abort()
        return await watcher.message() is not None


async def shares_subscriptions(bench: Bench) -> bool:
    """Do two subscribers of one group get each message once between them?"""
    topic, count = bench.topic(), 6
    async with await bench.open() as one, await bench.open() as two, await bench.open() as publisher:
        for member in (one, two):
            (code,) = await member.subscribe(f"$share/probe/{topic}")
            if code >= 0x80:
                return False
        for _ in range(count):
            await publisher.publish(topic, b"probe", bench.qos)
        await asyncio.sleep(publisher.timeout / 2)
        return one.messages.qsize() + two.messages.qsize() == count


async def keeps_sessions(bench: Bench) -> tuple[bool | None, bool | None]:
    """Does a session outlive its connection with a message that came meanwhile, and does CONNACK say so?"""
    topic = bench.topic()
    async with bench.lasting() as reconnect:
        async with await reconnect() as sleeper:
            await sleeper.subscribe(topic, qos=1)
        # Nothing tells when the broker has noticed the end; before that the message would only be repeated.
        await asyncio.sleep(sleeper.timeout / 10)
        async with await bench.open() as publisher:
            await publisher.publish(topic, b"probe", bench.qos)
        async with await reconnect() as sleeper:
            return await sleeper.message() is not None, sleeper.connack.session_present


async def respects_no_local(bench: Bench) -> bool | None:
    if bench.version < 5:
        return None
    topic = bench.topic()
    async with await bench.open() as talker, await bench.open() as other:
        await talker.subscribe(Subscription(topic, 1, no_local=True))
        await talker.publish(topic, b"own", bench.qos)
        await other.publish(topic, b"other", bench.qos)
        message = await talker.message()
        return message is not None and message.payload == b"other"


async def respects_retain_as_published(bench: Bench) -> bool | None:
    if bench.version < 5:
        return None
    topic = bench.topic()
    async with await bench.open() as watcher, await bench.open() as publisher:
        await watcher.subscribe(Subscription(topic, 1, retain_as_published=True))
        await publisher.publish(topic, b"probe", bench.qos, retain=True)
        try:
            message = await watcher.message()
            return message is not None and message.retain
        finally:
            await publisher.publish(topic, b"", bench.qos, retain=True)


async def passes_user_properties(bench: Bench) -> bool:
    """Does a publication of QoS 1 come back with its user properties? On a `$` topic, which no client of this
    broker gets that asked for `#`; and only where nothing comes back from there, on another."""
    own = tuple((Property.USER_PROPERTY, ("bw", value)) for value in ("abcdefghijklmnop", "é", "abcd"))
    async with await bench.open() as client:
        for topic in (f"${bench.topic()}", bench.topic()):
            try:
                (code,) = await client.subscribe(topic, qos=1)
                if code >= 0x80 or await client.publish(topic, b"probe", bench.qos, properties=own) >= 0x80:
                    continue
            except Unavailable:
                if client.closed.is_set():
                    raise
                continue
            message = await client.message(timeout=min(client.timeout, _OWN_DELIVERY))
            if message is not None:
                found = [pair for pair in message.properties if pair[0] is Property.USER_PROPERTY]
                return message.qos == bench.qos and found == list(own)
    return False


async def largest_packet(bench: Bench) -> int | None:
    largest = None
    for size in _SIZES:
        topic = bench.topic()
        payload = bytes(size - len(topic) - 16)
        try:
            async with await bench.open() as watcher, await bench.open() as publisher:
                await watcher.subscribe(topic)
                await publisher.publish(topic, payload, bench.qos)
                if await watcher.message() is None:
                    break
        except Unavailable:
            break
        largest = size
    return largest


async def fates_of_odd_topics(bench: Bench) -> tuple[tuple[str, str], ...]:
    """The kinds of topic that do not arrive as they were sent, each with what happens instead."""

    async def fate(pattern: str) -> str:
        # What went wrong once is asked again, as in `tried`.
        return await _fate_of_topic(bench, pattern) and await _fate_of_topic(bench, pattern)

    fates = await asyncio.gather(*map(fate, ODD_TOPICS.values()))
    return tuple((kind, fate) for kind, fate in zip(ODD_TOPICS, fates, strict=True) if fate)


async def _fate_of_topic(bench: Bench, pattern: str) -> str:
    """What happens to a publication on such a topic; empty if it arrives as it was sent."""
    topic = pattern.format(bench.topic())
    try:
        async with await bench.open() as watcher, await bench.open() as publisher:
            watching = await _watch(watcher, topic)
            try:
                code = await publisher.publish(topic, b"probe", bench.qos)
            except Unavailable:
                return "closes the connection" if publisher.closed.is_set() else "is not acknowledged"
            if code >= 0x80:
                return f"refused with 0x{code:02x}"
            if not watching:
                return "cannot be subscribed to"
            message = await watcher.message()
            if message is None:
                return "does not arrive"
            return "" if message.topic == topic else f"arrives as {_without_our_name(message.topic)}"
    except Unavailable as error:
        return str(error)


async def _watch(watcher: Client, topic: str) -> bool:
    try:
        return (await watcher.subscribe(topic))[0] < 0x80
    except Unavailable:
        return False


def _without_our_name(topic: str) -> str:
    """The part of one of our topics that is not our own name."""
    return topic.rpartition("brokerweave-probe")[2][13:] or topic

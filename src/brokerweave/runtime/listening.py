"""What a running node offers its listeners, and what they publish through it.

Owns, for each listener that publishes, one client session of the node with itself: so its publications meet
the same access list, taps, strategy and broker as anybody's, and nothing in the relay knows of them.
Invariants: a listener that never publishes costs nothing; one that does is not shown its own publications;
they leave one after the other, each when the one before was acknowledged; no more wait than `client_queue`
bytes; what is refused or dropped is counted. Must not know: what listeners do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.errors import BrokerweaveError, LocalProtocolError
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, PubAck, PubComp, Publish, PubRec, PubRel
from brokerweave.mqtt.properties import Property, without
from brokerweave.node.core import NodeCore
from brokerweave.plugin import Listener, NodeState, OptionValue, Timer
from brokerweave.runtime.client import Client
from brokerweave.runtime.sessions import RuntimeSessions
from brokerweave.runtime.tasks import PAUSE_MAX, PAUSE_MIN, supervise

if TYPE_CHECKING:
    from brokerweave.runtime.node import Node

ANSWER_SECONDS = 60.0
"""More than an acknowledgement waits for other sites."""
SESSION_SECONDS = 300
"""How long a broker keeps the session of a connection that failed, where it speaks MQTT 5."""
MOST_ATTEMPTS = 5
"""A publication at which the connection ends each time keeps the others waiting no longer."""
_COST = 256
"""Bytes that a publication takes in memory beside its contents, about."""
_REFUSED = 0x80


class RuntimeListenerContext:
    """Implements `plugin.ListenerContext`."""

    def __init__(
        self,
        node: Node,
        kind: type[Listener],
        sessions: RuntimeSessions,
        login: tuple[str | None, bytes | None],
    ) -> None:
        self.sessions = sessions
        self.options: Mapping[str, OptionValue] = node.config.options[kind.name]
        self.now = node.now
        self._node = node
        self._core: NodeCore = node.core
        self._publisher = ListenerPublisher(
            node, self, f"brokerweave-listener-{kind.name}-{node.core.node_id}", login
        )
        self.publish = self._publisher.publish
        self.stop = self._publisher.stop
        self.listener = kind(self)

    @property
    def node_id(self) -> str:
        return self._core.node_id

    @property
    def state(self) -> NodeState:
        return self._core.lifecycle.state

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        def call() -> None:
            try:
                callback()
            except Exception as error:
                self._core.plugins.failed(self.listener, error)

        return self._node.call_later(seconds, call)


class ListenerPublisher:
    def __init__(
        self,
        node: Node,
        context: RuntimeListenerContext,
        client_id: str,
        login: tuple[str | None, bytes | None],
    ) -> None:
        self._node = node
        self._context = context
        self._client_id = client_id
        self._login = login
        self._abilities = BrokerAbilities()
        self._waiting: deque[tuple[Publish, int]] = deque()
        self._bytes = 0
        self._attempts = 0
        self._packet_id = 0
        """Of the first that waits, once it was sent at QoS 1 or 2."""
        self._received = False
        """Whether the broker answered that one with PUBREC."""
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task: asyncio.Task[None] | None = None

    def publish(self, packet: Publish) -> bool:
        limits = self._node.config.limits
        properties = without(packet.properties, Property.TOPIC_ALIAS)
        packet = replace(packet, dup=False, packet_id=1 if packet.qos else 0, properties=properties)
        size = len(codec.encode(packet, 5))
        if size > limits.max_packet:
            raise LocalProtocolError(f"a publication of {size} bytes is larger than max_packet")
        if self._waiting and self._bytes + size + _COST > limits.client_queue:
            self._node.core.count("listener_publications_refused")
            return False
        self._waiting.append((packet, size + _COST))
        self._bytes += size + _COST
        self._empty.clear()
        self._wake.set()
        if self._task is None:
            work = supervise(self._client_id, self._run, self._node.task_failed)
            self._task = asyncio.get_running_loop().create_task(work)
        return True

    async def stop(self, seconds: float) -> None:
        """Give what waits so long to get to the broker."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._node.core.count("dropped_listener_publications", len(self._waiting))

    async def _run(self) -> None:
        """Publish as long as the connection holds; open another when there is something to publish."""
        pause = PAUSE_MIN
        while True:
            await self._wake.wait()
            try:
                async with await self._connect() as client:
                    pause = PAUSE_MIN
                    await self._publish_all(client)
            except BrokerweaveError:
                pass  # the broker is away, and everything else says so already
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    async def _connect(self) -> Client:
        core = self._node.core
        username, password = self._login
        self._abilities = core.injectors[0].abilities
        version = self._abilities.version
        resumes = bool(self._packet_id) and version == 5
        shown_to = tuple(each for each in core.plugins.listeners if each is not self._context.listener)
        streams = await self._node.client_listener.connect_own(shown_to)
        expiry = ((Property.SESSION_EXPIRY_INTERVAL, SESSION_SECONDS),) if version == 5 else ()
        connect = Connect(self._client_id, version, not resumes, 0, username, password, None, expiry)
        return await Client.begin(*streams, connect, ANSWER_SECONDS)

    async def _publish_all(self, client: Client) -> None:
        while not client.closed.is_set():
            while self._waiting:
                packet, size = self._waiting[0]
                self._attempts += 1
                if (
                    self._attempts > MOST_ATTEMPTS
                    or await self._publish(client, self._fitted(packet)) >= _REFUSED
                ):
                    self._node.core.count("listener_publications_refused")
                self._attempts = self._packet_id = 0
                self._waiting.popleft()
                self._bytes -= size
            self._empty.set()
            self._wake.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (self._wake, client.closed)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _fitted(self, packet: Publish) -> Publish:
        """As the broker can take it."""
        able = self._abilities
        return replace(
            packet,
            qos=min(packet.qos, able.max_qos),
            retain=packet.retain and able.retain,
            properties=packet.properties if able.version == 5 else (),
        )

    async def _publish(self, client: Client, packet: Publish) -> int:
        """Publish, or go on where an earlier connection ended; the broker's reason code."""
        if packet.qos == 0:
            return await client.publish(
                packet.topic, packet.payload, retain=packet.retain, properties=packet.properties
            )
        resumed = bool(self._packet_id) and client.connack.session_present
        if not resumed:
            self._packet_id, self._received = client.next_id(), False
        packet_id = self._packet_id
        if not self._received:
            client.send(replace(packet, packet_id=packet_id, dup=resumed))
            if packet.qos == 1:
                return (await client.answer(PubAck, packet_id)).reason_code
            code = (await client.answer(PubRec, packet_id)).reason_code
            if code >= _REFUSED:
                return code
            self._received = True
        client.send(PubRel(packet_id))
        await client.answer(PubComp, packet_id)
        return 0

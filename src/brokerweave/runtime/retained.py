"""Reads retained messages back from the local broker, with short sessions of the node's own.

Owns three occasions: the first contact with a broker, whose own messages are then told to the other sites;
the check of single topics that the core asks for; and the broker's return after it was away. Invariants:
every read is bounded in time and bytes; nothing is published here but by a probe, once, where nothing else
can tell an empty broker of MQTT 3.1.1 from one that gives no retained messages to wildcard filters. Must not
know: which version wins, what is done with what was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

from brokerweave.config import NodeConfig
from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.links.injector import InjectorState
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.node.core import NodeCore
from brokerweave.node.retained_check import BATCH, Found
from brokerweave.runtime.experiments import Bench, retains_for_wildcard
from brokerweave.runtime.injection import Injection
from brokerweave.runtime.retained_store import SqliteStore
from brokerweave.runtime.tasks import supervise

log = logging.getLogger("brokerweave.retained")

QUIET = 1.0
"""Seconds without a retained message after which a broker is taken to have sent all."""
LONGEST = 60.0
"""Seconds that one reading may take, however much comes."""
TIMEOUT = 5.0
"""Seconds that the broker may take for one answer."""
POLL = 0.2
PAUSE = 2.0
"""Seconds between two returns of the broker that are acted on."""
FIRST_ATTEMPTS = 3
HOLD = 10.0
"""Seconds that neighbours wait for the first contact before they compare indexes all the same."""
SLICE = 200
"""Messages adopted before clients get their turn again."""


class RetainedReaderHost(Protocol):
    @property
    def core(self) -> NodeCore: ...

    @property
    def injection(self) -> Injection: ...

    def warn(self, message: str) -> None: ...

    def task_failed(self, task: str, error: BaseException) -> None: ...


class RetainedReader:
    def __init__(
        self,
        host: RetainedReaderHost,
        store: SqliteStore,
        config: NodeConfig,
        login: tuple[str | None, bytes | None],
    ) -> None:
        self.state = "waiting for the broker"
        """What is known of the broker's own retained messages, for `status`."""
        self._host = host
        self._store = store
        self._broker = config.node.broker
        self._proxied = config.node.proxy_protocol
        self._config = config.retained
        self._login = login
        self._version = 4
        self._tasks: set[asyncio.Task[None]] = set()
        if self._first:
            # Or what the broker has already would come from a neighbour first, as news for its subscribers.
            host.core.retained.hold()
            host.core.call_later(HOLD, host.core.retained.go_on)
        self._spawn(supervise("retained reader", self._run, host.task_failed))

    @property
    def _first(self) -> bool:
        """Whether the broker is to be read as a whole."""
        when = self._config.read_broker
        return when == "always" or (when == "first" and not self._store.broker_was_read)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        await self._broker_ready()
        essentials = self._host.injection.essentials
        assert essentials is not None
        self._version = essentials.version
        if not essentials.retain:
            self.state = "the broker retains nothing"
            return
        retained = self._host.core.retained
        retained.check.reader = lambda topics, done: self._spawn(self._check(topics, done))
        attempts = FIRST_ATTEMPTS if self._first else 0
        if not attempts:
            self.state = "read at an earlier start" if self._store.broker_was_read else "not read"
        while True:
            losses = self._host.injection.losses
            if attempts:
                attempts = 0 if await self._first_contact(attempts == 1) else attempts - 1
                retained.go_on()
            if self._config.restore == "missing":
                retained.broker_returned()
            await asyncio.sleep(PAUSE)
            while self._host.injection.losses == losses and not attempts:  # noqa: ASYNC110 (as below)
                await asyncio.sleep(POLL)
            await self._broker_ready()

    async def _broker_ready(self) -> None:
        core = self._host.core
        while not all(i.state is InjectorState.READY for i in core.injectors):  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(POLL)

    # First contact

    async def _first_contact(self, last: bool) -> bool:
        """Read all that the broker holds. False: that failed, and may go better another time."""
        retained = self._host.core.retained
        self.state = "being read"
        try:
            found = await self._read("#", qos=0)
            # An MQTT 5 broker that finds nothing has nothing; of the older ones some cannot look.
            readable = bool(found) or self._version == 5 or await retains_for_wildcard(self._bench())
        except BrokerweaveError as error:
            self.state = f"could not be read: {error}"
            if not last:
                return False
            found, readable = {}, False
        if not readable:
            retained.broker_read = False
            self.state = "the broker gives no retained messages to wildcard filters"
            self._host.warn(f"{self.state}: what it retained before this node started stays at this site")
        # Who published them is not known; the node itself must be allowed to.
        admits = self._host.core.admission.may_write_as
        news, topics = 0, [topic for topic in found if admits(self._login[0], topic)]
        for at in range(0, len(topics), SLICE):
            some = topics[at : at + SLICE]
            # Asked for at QoS 0 all came, but without their QoS; a queue for QoS 1 would not hold them all.
            again = await self._read_exact(some) or {}
            messages = [again.get(topic, found[topic]) for topic in some]
            news += retained.adopt((self._published(m), self._version) for m in messages)
        if readable:
            self.state = f"{news} messages of the broker's own read"
        self._store.mark_broker_read()
        return True

    def _published(self, message: Publish) -> bytes:
        """As its publisher wrote it: the broker may have it from a node of an earlier time, with a stamp."""
        frame = codec.encode(message, self._version)
        return self._host.core.stamps.take_off(frame)[0] if self._version == 5 else frame

    # Reading

    async def _check(self, topics: list[str], done: Callable[[Found], None]) -> None:
        try:
            found = await self._read_exact(topics)
        except Exception as error:
            self._host.task_failed("retained check", error)
            found = None
        done(None if found is None else {topic: message.payload for topic, message in found.items()})

    async def _read_exact(self, topics: list[str]) -> dict[str, Publish] | None:
        found: dict[str, Publish] = {}
        try:
            for at in range(0, len(topics), BATCH):
                found |= await self._read(*topics[at : at + BATCH], qos=2)
        except BrokerweaveError as error:
            log.info("broker %s: %s", self._broker, error)
            return None
        return found

    async def _read(self, *filters: str, qos: int) -> dict[str, Publish]:
        """The retained messages that match, by topic. Ends early when every exact topic has come."""
        found: dict[str, Publish] = {}
        size, loop = 0, asyncio.get_running_loop()
        wanted = len(filters) if filters != ("#",) else -1
        async with await self._bench().open() as client:
            codes = await client.subscribe(*filters, qos=qos)
            if all(code >= 0x80 for code in codes):
                raise Unavailable("the broker refuses this node's subscription")
            last = started = loop.time()
            while len(found) != wanted and size < self._config.max_bytes and last - started < LONGEST:
                message = await client.message(timeout=max(last + QUIET - loop.time(), 0.001))
                if message is None and (client.messages.empty() or client.closed.is_set()):
                    break
                # amqtt gives retained messages also to clients that did not ask for them.
                if message is not None and message.retain and (wanted < 0 or message.topic in filters):
                    found[message.topic] = message
                    size += len(message.payload) + len(message.topic)
                    last = loop.time()
            if client.closed.is_set():
                raise Unavailable(client.close_reason)
        return found

    def _bench(self) -> Bench:
        bench = Bench(self._broker, *self._login, TIMEOUT, self._proxied)
        bench.version = self._version
        return bench

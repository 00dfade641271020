"""The sockets of injectors: the node's own sessions to its broker.

Owns connecting, with back-off, for as long as the node runs; a broker that is not there yet, or goes away,
is normal. Invariant: an injector is polled once per loop turn and only while its socket takes more. Must
not know: what is injected.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol, cast

from brokerweave.config import BrokerAddress, LinksSection
from brokerweave.errors import BrokerweaveError, RemoteProtocolError
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.injector import Injector, InjectorState
from brokerweave.node.core import NodeCore
from brokerweave.runtime.dialing import dial
from brokerweave.runtime.probe import Essentials, probe_essentials
from brokerweave.runtime.tasks import supervise
from brokerweave.session import proxy_header

log = logging.getLogger("brokerweave.injection")

WRITE_BUFFER = 256 * 1024
TICK_SECONDS = 0.5


class InjectionHost(Protocol):
    @property
    def core(self) -> NodeCore: ...

    def now(self) -> float: ...

    def task_failed(self, task: str, error: BaseException) -> None: ...


class InjectorSocket(asyncio.Protocol):
    """One connection of one injector."""

    def __init__(self, injection: Injection, injector: Injector) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self._injection = injection
        self._injector = injector
        self._transport: asyncio.Transport | None = None
        self._writable = True

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's has the methods, not the class
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        if self._injection.proxied:
            transport.write(proxy_header.own(transport.get_extra_info))
        transport.write(self._injector.connected(self._injection.host.now()))

    def data_received(self, data: bytes) -> None:
        try:
            self._injector.receive(data, self._injection.host.now())
        except RemoteProtocolError as error:
            log.warning("broker: %s", error)
            self.close()
            return
        self.write()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.write()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._injector.disconnected(self._injection.host.now())
        finally:
            if not self.closed.done():
                self.closed.set_result(None)

    def write(self) -> None:
        now = self._injection.host.now()
        while self._writable and self._transport is not None and not self._transport.is_closing():
            data = self._injector.poll(now)
            if not data:
                break
            self._transport.write(data)
        if self._injector.wants_reconnect:
            self.close()

    def tick(self) -> None:
        self._injector.tick(self._injection.host.now())
        self.write()

    def leave(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._injector.close())
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Injection:
    def __init__(
        self,
        host: InjectionHost,
        broker: BrokerAddress,
        config: LinksSection,
        broker_timeout: float,
        username: str | None,
        password: bytes | None,
        proxied: bool = False,
    ) -> None:
        """`proxied`: each connection begins with a PROXY header."""
        self.host = host
        self.proxied = proxied
        self.essentials: Essentials | None = None
        """What the broker can do; None until it was reached once."""
        self.losses = 0
        """Connections to the broker that ended."""
        self._broker = broker
        self._config = config
        self._timeout = broker_timeout
        self._username = username
        self._password = password
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[int, InjectorSocket] = {}
        self._ready: set[int] = set()
        self._tasks = [
            self._loop.create_task(supervise("injection", self._run, host.task_failed)),
            self._loop.create_task(supervise("injection's tick", self._tick, host.task_failed)),
        ]

    def injector_ready(self, lane: int) -> None:
        if not self._ready:
            self._loop.call_soon(self._write_ready)
        self._ready.add(lane)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        leaving = list(self._sockets.values())
        for socket in leaving:
            socket.leave()
        if leaving:
            await asyncio.wait([socket.closed for socket in leaving], timeout=1.0)

    def _write_ready(self) -> None:
        ready, self._ready = self._ready, set()
        for lane in ready:
            socket = self._sockets.get(lane)
            if socket is not None:
                socket.write()

    async def _run(self) -> None:
        """Learn what the broker can do, then keep every injector connected."""
        pause, level = self._config.reconnect_min, logging.WARNING
        while self.essentials is None:
            try:
                self.essentials = await probe_essentials(
                    self._broker,
                    username=self._username,
                    password=self._password,
                    timeout=self._timeout,
                    proxied=self.proxied,
                    user_properties=self.host.core.care.watches_deliveries,
                )
            except BrokerweaveError as error:
                log.log(level, "%s; trying again", error)
                level = logging.INFO  # said once
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._config.reconnect_max)
        found = self.essentials
        abilities = BrokerAbilities(
            version=5 if found.version == 5 else 4,
            max_qos=found.max_qos,
            retain=found.retain,
            receive_maximum=found.receive_maximum,
            maximum_packet=found.maximum_packet,
            user_properties=found.user_properties is True,
        )
        async with asyncio.TaskGroup() as group:
            for lane, injector in enumerate(self.host.core.injectors):
                injector.learn(abilities)
                work = partial(self._keep_connected, lane, injector)
                group.create_task(supervise(f"injector {lane}", work, self.host.task_failed))

    async def _keep_connected(self, lane: int, injector: Injector) -> None:
        pause = self._config.reconnect_min
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    socket = await dial(self._broker, lambda: InjectorSocket(self, injector))
            except (OSError, TimeoutError) as error:
                log.debug("broker %s: %s", self._broker, error)
            else:
                self._sockets[lane] = socket
                try:
                    await socket.closed
                finally:
                    del self._sockets[lane]
                self.losses += 1
                if injector.reason:
                    log.info("injector %d: %s", lane, injector.reason)
                if injector.state is not InjectorState.REFUSED:
                    pause = self._config.reconnect_min
            await asyncio.sleep(pause * (0.5 + self.host.core.random.random() / 2))
            pause = min(pause * 2, self._config.reconnect_max)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for socket in list(self._sockets.values()):
                socket.tick()

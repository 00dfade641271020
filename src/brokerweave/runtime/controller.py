"""The controller as a process: the pure agent with a UDP port, an API, membership and signals around it.

Owns the order of starting (state, sites, port, membership, API last, so that it answers only when it is
ready) and of stopping. Must not know: what is decided.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Mapping
from random import Random

import uvloop

import brokerweave
from brokerweave.config import Address
from brokerweave.config.controller import ControllerConfig, SiteSection
from brokerweave.membership.members import Member
from brokerweave.membership.meta import Meta
from brokerweave.placement.controller_agent import ControllerAgent
from brokerweave.placement.core import CoreSettings
from brokerweave.placement.emma_agents import EmmaControllerAgent
from brokerweave.placement.graph import GraphSite, Leaving, Load
from brokerweave.placement.policy import PolicySettings, policy
from brokerweave.runtime import logs
from brokerweave.runtime.controller_commands import ControllerCommands
from brokerweave.runtime.controller_state import ControllerState, OperatorRequests
from brokerweave.runtime.datagram_port import DatagramPort, plain, resolved
from brokerweave.runtime.json_api import JsonApi
from brokerweave.runtime.membership import Membership, OwnMembership
from brokerweave.runtime.monitoring import draw_boot, monitoring_key
from brokerweave.runtime.problems import Problems
from brokerweave.runtime.secret_files import read_key, read_token

log = logging.getLogger("brokerweave.controller")


def run(config: ControllerConfig) -> int:
    """Run a controller until SIGTERM or SIGINT. Raises `BrokerweaveError` if it cannot start."""
    logs.configure(config.controller.log_level, config.controller.log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(ControllerProcess(config).serve())


class ControllerProcess:
    """Is also the `membership.events.Watcher`: sites come and go as members do."""

    def __init__(self, config: ControllerConfig) -> None:
        self.config = config
        self._started = time.monotonic()
        self._problems = Problems()
        self._port = DatagramPort()
        self._stopping = asyncio.Event()
        self._state = ControllerState(config.controller.data_dir, self._problems.warn)
        self._asked = self._state.load()
        self._agent = self._make_agent()
        self._core = self._agent.core
        self._core.pins.update(self._asked.pins)
        self._configured = {site.name: site for site in config.sites}
        self._membership: Membership | None = None
        self._ending: set[str] = set()
        """Sites whose nodes are about to stop."""

    def _make_agent(self) -> ControllerAgent | EmmaControllerAgent:
        own, pace = self.config.controller, self.config.pace
        settings = CoreSettings(
            own.round, own.gateway_timeout, own.order_timeout, pace.at_once, pace.per_second, own.history
        )
        section = self.config.policy
        chosen = policy(section.name)(
            PolicySettings(section.theta, section.hold, section.rest, section.margin, Load(section.load))
        )
        now, first = time.monotonic(), int(time.time() * 1000) << 20  # a later start has higher numbers
        if not own.sealed:
            return EmmaControllerAgent(own.id, chosen, settings, self._port.send, now, first)
        key = read_key(own.key_file)
        assert key is not None  # the configuration was checked
        random = Random(secrets.randbits(64))
        return ControllerAgent(
            own.id,
            monitoring_key(key),
            draw_boot(),
            chosen,
            settings,
            random,
            self._port.send,
            now,
            first,
        )

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._problems.loop_failed(context))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        commands = ControllerCommands(self._core, self.config.pace.drain_per_second, self._changed)
        token = read_token(self.config.controller.api_token_file)
        api = JsonApi({"/status": self._status, **commands.asked()}, commands.told(), token)
        try:
            for site in self.config.sites:
                await self._configured_site(site)
            await self._port.open(self.config.controller.listen, "listen")
            self._port.serve_timed(self._agent)
            await self._join()
            await api.start(self.config.controller.api)
            log.info(
                "controller %s: gateways at %s, api at %s", self._core.id, self._port.address, api.address
            )
            await self._stopping.wait()
        finally:
            api.close()
            if self._membership is not None:
                await self._membership.stop()
                self._membership.close()
            self._port.close()
        return 0

    # Sites

    async def _configured_site(self, site: SiteSection) -> None:
        if site.clients is not None:
            monitor = await resolved(site.monitor) if site.monitor is not None else None
            self._site_here(GraphSite(site.name, plain(site.clients), monitor, site.weight))

    def _site_here(self, site: GraphSite) -> None:
        site.leaving = Leaving(self._asked.leaving.get(site.name, ""))
        self._core.site_here(site)
        self._port.look()

    async def _join(self) -> None:
        section, own = self.config.membership, self.config.controller
        key = read_key(section.key_file or own.key_file)
        if section.bind is None or key is None:
            return
        observing = OwnMembership(section, own.id, meta=Meta(observer=True).encode())
        random = Random(secrets.randbits(64))
        self._membership = Membership(observing, key, random, self, self._problems.warn)
        await self._membership.start()

    def member_joined(self, member: Member) -> None:
        meta, known = Meta.decode(member.meta), self._configured.get(member.id)
        clients = meta.clients
        if known is not None and known.clients is not None:
            clients = plain(known.clients)  # as it is reached from where gateways are
        if clients is not None:
            weight = known.weight if known is not None else 1.0
            own = known.monitor if known is not None else None
            monitor = plain(own) if own is not None else meta.monitor
            self._site_here(GraphSite(member.id, clients, monitor, weight))
            self._ends(member.id, meta.stops)

    def _ends(self, site: str, ends: bool) -> None:
        """A site whose node is about to stop is left while it still serves its clients."""
        if ends and site not in self._ending:
            self._ending.add(site)
            self._core.evacuate(site)
        elif not ends and site in self._ending:
            self._ending.discard(site)
            self._core.resume(site)
        self._port.look()

    def member_changed(self, member: Member) -> None:
        self.member_joined(member)

    def member_suspected(self, member: Member) -> None: ...

    def member_refuted(self, member: Member) -> None: ...

    def member_left(self, member: Member) -> None:
        """In good order: what was asked of it is done, and when it returns it takes clients."""
        self._asked.leaving.pop(member.id, None)
        self._ending.discard(member.id)
        if member.id in self._core.graph.sites:
            self._core.resume(member.id)
        self._core.site_gone(member.id)
        self._changed()

    def member_died(self, member: Member) -> None:
        self._core.site_gone(member.id)
        self._port.look()

    # What is asked

    def _changed(self) -> None:
        sites = self._core.graph.sites.values()
        leaving = {
            site.name: site.leaving.value
            for site in sites
            if site.leaving is not Leaving.NO and site.name not in self._ending
        }
        unseen = {
            name: each for name, each in self._asked.leaving.items() if name not in self._core.graph.sites
        }
        self._asked = OperatorRequests(self._core.pins, {**unseen, **leaving})
        self._state.save(self._asked)
        self._port.look()

    def _status(self, request: Mapping[str, object]) -> object:
        core, own = self._core, self.config.controller
        clients = [len(gateway.clients) for gateway in core.graph.gateways.values()]
        return {
            "controller": {
                "id": core.id,
                "version": brokerweave.__version__,
                "uptime": round(time.monotonic() - self._started, 3),
                "listen": str(Address(*self._port.address)),
                "policy": self.config.policy.name,
                "sealed": own.sealed,
            },
            "sites": len(core.graph.sites),
            "gateways": len(clients),
            "clients": sum(clients),
            "pins": len(core.pins),
            "under_way": len(core.orders),
            "waiting": core.waiting,
            "counters": {**core.counters, **core.orders.counters, "history": len(core.history)},
            "refused": self._agent.refused,
            "membership": self._membership.status() if self._membership is not None else None,
            "warnings": self._problems.warnings,
        }

"""What the documents let pass: each allowance is one sentence, one function, and one place in
docs/guarantees.md.

Invariant: an allowance looks at what users saw and at the faults, as near to the message as they tell. Must
not know: how problems are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from brokerweave.sim.users_view.doubled import Doubled
from brokerweave.sim.users_view.faults import Faults
from brokerweave.sim.users_view.history import Connection, History
from brokerweave.sim.users_view.lost import Lost
from brokerweave.sim.users_view.order import Late

Problem = Lost | Doubled | Late

HEARD_SECONDS = 0.1
"""Until all sites in reach know what a client has answered, or where it is."""
NOTICED_SECONDS = 3.0
"""Until the death of a site is noticed everywhere."""
RESTORED_SECONDS = 5.0
"""After a death, until each message has all its copies again."""
PASSED_SECONDS = 1.0
"""Until what waited for a link, or for a client, has passed."""
BROKER_SECONDS = 0.1
"""Until a node has its broker's answer."""


@dataclass(frozen=True, slots=True)
class Scene:
    history: History
    faults: Faults

    def stays(self, client: str, since: float) -> list[Connection]:
        """The connections of a client from the one that it had at a time."""
        connections = self.history.connections[client]
        before = [each for each in connections if each.since <= since][-1:]
        return before + [each for each in connections if each.since > since]

    def sites_of(self, client: str, since: float, until: float = inf) -> set[str]:
        return {each.site for each in self.stays(client, since)[:1]} | {
            each.site for each in self.stays(client, since) if each.since <= until
        }

    def due(self, client: str, publication: Publication) -> float:
        """When a client should have had a publication at the latest: it had been connected for a while, and
        subscribed, and its site reached those that may have something for it."""
        for connection in self.stays(client, publication.at):
            home, over = connection.site, connection.over
            granted = [at for at in self.history.granted_at[client] if connection.since <= at <= over]
            if not granted:
                continue
            was_there = granted[0] < publication.at
            others = publication.sites if was_there else self.faults.sites
            since = max(granted[0], publication.acknowledged)
            for _ in others:  # each may be clear only after another one is
                since = max(self.faults.clear(home, other, since) for other in (*others, f"{home}/broker"))
            if since + PASSED_SECONDS <= over:
                return since + PASSED_SECONDS
        return inf


# Lost


def queue_was_full(scene: Scene, problem: Problem) -> bool:
    """Its publisher's site counted a message that a full queue for the subscriber's site dropped, or that one
    a message for its broker, just when this should have passed."""
    publication, faults = problem.publication, scene.faults
    due = scene.due(problem.client, publication)
    for home in scene.sites_of(problem.client, publication.at, due):
        for origin in publication.sites:
            drops = [at for at, to in faults.drops[origin] if to == home]
            drops += [at for at, to in faults.drops[home] if not to]
            for at in drops:
                late = faults.apart(origin, home, publication.at, at)
                passes = at <= publication.acknowledged + HEARD_SECONDS or late
                if publication.at <= at <= due and passes:
                    return True
    return False


def too_many_died(scene: Scene, problem: Lost) -> bool:
    """Before its subscriber could have it, as many sites as there are copies died with what they had, or were
    out of reach, its publisher's or its subscriber's among them."""
    publication, faults = problem.publication, scene.faults
    since, due = publication.at - NOTICED_SECONDS, scene.due(problem.client, publication)
    homes = scene.sites_of(problem.client, publication.at, due)
    deaths = [(at, site) for site in faults.sites for at in faults.kept_nothing(site, since, due)]
    deaths += [
        (each.since, site)
        for site in homes
        for each in faults.broker_outages(site, since, due)
        if each.lost and each.since >= since
    ]
    origin = publication.sent[-1].site
    away = {other for other in faults.sites if faults.apart(origin, other, publication.at, publication.at)}
    for at, site in deaths:
        if site in homes | publication.sites:
            gone = {other for died, other in deaths if abs(died - at) <= RESTORED_SECONDS}
            if len(gone | away) >= faults.copies:
                return True
    return False


def not_known_yet(scene: Scene, problem: Lost) -> bool:
    """Since the subscription, or since its publisher's node was started with nothing, that node had not
    reached the subscriber's site."""
    publication, faults = problem.publication, scene.faults
    for sending in publication.sent:
        home = scene.stays(problem.client, sending.at)[0].site
        since = problem.want.since
        for end in faults.nodes[sending.site]:
            if end.until <= sending.at and (
                not sending.ready or end.since in faults.kept_nothing(sending.site, end.since, end.since)
            ):
                since = max(since, end.until)
        if faults.clear(sending.site, home, since) >= sending.at:
            return True
    return False


def session_forgotten(scene: Scene, problem: Problem) -> bool:
    """Its subscriber's node had lost its disk, and not the broker the session, and the subscriber had not
    subscribed again."""
    publication, faults = problem.publication, scene.faults
    for home in scene.sites_of(problem.client, publication.at):
        for outage in faults.nodes[home]:
            granted = [at for at in scene.history.granted_at[problem.client] if at > outage.since]
            known = granted[0] if granted else inf
            if not outage.lost or any(each.lost for each in faults.broker_outages(home, outage.since, known)):
                continue
            if outage.since - HEARD_SECONDS <= publication.at <= known:
                return True
    return False


# Doubled


def answer_not_told(scene: Scene, problem: Doubled) -> bool:
    """The subscriber's site died before it could tell the others of the answer."""
    faults = scene.faults
    for receipt in problem.before:
        connection = receipt.connection
        told = receipt.at + HEARD_SECONDS
        told = max(faults.clear(connection.site, other, told) for other in faults.sites)
        if connection.over <= min(told, problem.again.at):
            return True
    return False


def in_flight_to_the_broker(scene: Scene, problem: Doubled) -> bool:
    """The node of the subscriber's site ended, or lost its broker, before it had the broker's answer."""
    publication, faults = problem.publication, scene.faults
    for receipt in problem.before:
        site = receipt.connection.site
        until = faults.clear(site, f"{site}/broker", receipt.at) + BROKER_SECONDS
        ends = [*faults.nodes[site], *faults.brokers[site]]
        if any(publication.at <= end.since <= until for end in ends):
            return True
    return False


def published_again(scene: Scene, problem: Problem) -> bool:
    """Its publisher had no answer, and sent it again, or sent the later one elsewhere."""
    if isinstance(problem, Late) and problem.publication.sites != problem.behind.sites:
        return scene.due(problem.client, problem.publication) >= problem.behind.at
    return len(problem.publication.sent) > 1


def retained_again(scene: Scene, problem: Problem) -> bool:
    """It is retained, and a site got it again by comparison, or because its broker had lost it."""
    return problem.publication.retain


def will_of_two(scene: Scene, problem: Problem) -> bool:
    """It is the will of a client whose site was killed, or out of reach: that site and another one published
    it."""
    return problem.publication.is_will


def kept_out_of_reach(scene: Scene, problem: Late) -> bool:
    """Its subscriber had come from elsewhere, or again, and a site that kept it did not reach it before the
    later one did."""
    publication, faults = problem.publication, scene.faults
    overtaken = problem.behind_receipt.at
    stays = [each for each in scene.stays(problem.client, publication.at) if each.since <= overtaken]
    granted = [at for at in scene.history.granted_at[problem.client] if publication.at <= at <= overtaken]
    if len(stays) == 1 and not granted:
        return False
    return any(
        faults.apart(one, each.site, publication.at, overtaken) for one in faults.sites for each in stays
    )


@dataclass(frozen=True, slots=True)
class Allowance:
    name: str
    anchor: str
    of: tuple[type, ...]
    holds: Callable[..., bool]


ALLOWANCES = (
    Allowance("a full queue dropped it", "qos-1-and-2-local-delivery", (Lost, Late), queue_was_full),
    Allowance("as many sites died as there were copies", "mesh", (Lost,), too_many_died),
    Allowance("its publisher's node could not know the subscription", "mesh", (Lost,), not_known_yet),
    Allowance("its node had forgotten its session", "session", (Lost, Doubled, Late), session_forgotten),
    Allowance("its site died before others heard of the answer", "mesh", (Doubled,), answer_not_told),
    Allowance("in flight to the broker", "crash", (Doubled,), in_flight_to_the_broker),
    Allowance("its publisher sent it again", "mesh", (Doubled, Late), published_again),
    Allowance("retained, and got by comparison", "retained", (Doubled, Late), retained_again),
    Allowance("a will that two sites published", "will", (Doubled,), will_of_two),
    Allowance("kept where its subscriber's site was out of reach", "order", (Late,), kept_out_of_reach),
)


def why(problem: Problem, history: History, faults: Faults) -> str:
    """The allowance that holds, by its name; empty if there is none."""
    scene = Scene(history, faults)
    for allowance in ALLOWANCES:
        if isinstance(problem, allowance.of) and allowance.holds(scene, problem):
            return f"{type(problem).__name__.lower()}: {allowance.name}"
    return ""

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

    def sites_of(self, client: str, since: float) -> set[str]:
        return {each.site for each in self.stays(client, since)}


# Lost


def queue_was_full(scene: Scene, problem: Problem) -> bool:
    """The publisher's or the subscriber's site counted a message that its full queue dropped, after this was
    published and before it was acknowledged."""
    publication, faults = problem.publication, scene.faults
    sites = publication.sites | scene.sites_of(problem.client, publication.at)
    until = publication.acknowledged
    for site in sites:
        for at in faults.drops[site]:
            if publication.at <= at <= until + HEARD_SECONDS:
                return True
            late = any(faults.apart(one, site, publication.at, at) for one in publication.sites)
            if late and at >= publication.at:
                return True
    return False


def too_many_died(scene: Scene, problem: Lost) -> bool:
    """As many sites as there are copies died with what they had, or were out of reach, when the site of its
    publisher or its subscriber died."""
    publication, faults = problem.publication, scene.faults
    homes = scene.sites_of(problem.client, publication.at)
    since = publication.at - NOTICED_SECONDS
    deaths = [(at, site) for site in faults.sites for at in faults.kept_nothing(site, since, inf)]
    deaths += [
        (each.since, site)
        for site in homes
        for each in faults.broker_outages(site, since, inf)
        if each.lost and each.since >= since
    ]
    for at, site in deaths:
        if site not in homes | publication.sites:
            continue
        gone = {other for died, other in deaths if abs(died - at) <= RESTORED_SECONDS}
        origin = publication.sent[-1].site
        gone |= {
            other for other in faults.sites if faults.apart(origin, other, publication.at, publication.at)
        }
        if len(gone) >= faults.copies:
            return True
    return False


def not_known_yet(scene: Scene, problem: Lost) -> bool:
    """Its publisher's node was not ready, or had been out of reach since the subscriber's site granted the
    filter."""
    publication, faults = problem.publication, scene.faults
    if not all(sending.ready for sending in publication.sent):
        return True
    return any(
        faults.apart(sending.site, problem.want.site, problem.want.since, problem.want.since)
        and faults.apart(sending.site, problem.want.site, sending.at, sending.at)
        for sending in publication.sent
    )


# Doubled


def answer_not_told(scene: Scene, problem: Doubled) -> bool:
    """The subscriber's site died just after it had the answer, or while another site had been out of its
    reach since then."""
    faults = scene.faults
    return any(
        receipt.connection.over <= problem.again.at
        and (
            receipt.connection.over <= receipt.at + HEARD_SECONDS
            or any(
                faults.apart(receipt.connection.site, other, receipt.connection.over, receipt.connection.over)
                for other in faults.sites
            )
        )
        for receipt in problem.before
    )


def in_flight_to_the_broker(scene: Scene, problem: Doubled) -> bool:
    """The node of the subscriber's site ended, or lost its broker, before it had the broker's answer."""
    publication, faults = problem.publication, scene.faults
    for receipt in problem.before:
        site, until = receipt.connection.site, receipt.at + BROKER_SECONDS
        if any(
            True
            for each in faults.between(publication.at, receipt.at)
            if each.sites == {site, f"{site}/broker"}
        ):
            until += 2.0
        ends = [
            *faults.node_outages(site, publication.at, until),
            *faults.broker_outages(site, publication.at, until),
        ]
        if any(publication.at <= end.since <= until for end in ends):
            return True
    return False


def published_again(scene: Scene, problem: Problem) -> bool:
    """Its publisher had no answer, and sent it again."""
    if isinstance(problem, Late) and len(problem.behind.sent) > 1:
        return True
    return len(problem.publication.sent) > 1


def retained_again(scene: Scene, problem: Problem) -> bool:
    """It is retained, and a site got it again by comparison, or because its broker had lost it."""
    return problem.publication.retain


def will_of_two(scene: Scene, problem: Problem) -> bool:
    """It is the will of a client whose site was killed, or out of reach: that site and another one published
    it."""
    return problem.publication.is_will


def publisher_moved(scene: Scene, problem: Late) -> bool:
    """Its publisher sent the later one to another site."""
    return problem.publication.sites != problem.behind.sites


def kept_out_of_reach(scene: Scene, problem: Late) -> bool:
    """A site that kept it was out of reach when its subscriber came, or should have had it."""
    publication, faults = problem.publication, scene.faults
    return any(
        faults.apart(one, other, publication.at, problem.receipt.at)
        for one in faults.sites
        for other in scene.sites_of(problem.client, publication.at)
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
    Allowance("its site died before others heard of the answer", "mesh", (Doubled,), answer_not_told),
    Allowance("in flight to the broker", "crash", (Doubled,), in_flight_to_the_broker),
    Allowance("its publisher sent it again", "mesh", (Doubled, Late), published_again),
    Allowance("retained, and got by comparison", "retained", (Doubled, Late), retained_again),
    Allowance("a will that two sites published", "will", (Doubled,), will_of_two),
    Allowance("its publisher lost its site", "order", (Late,), publisher_moved),
    Allowance("kept where its subscriber's site was out of reach", "order", (Late,), kept_out_of_reach),
)


def why(problem: Problem, history: History, faults: Faults) -> str:
    """The allowance that holds, by its name; empty if there is none."""
    scene = Scene(history, faults)
    for allowance in ALLOWANCES:
        if isinstance(problem, allowance.of) and allowance.holds(scene, problem):
            return f"{type(problem).__name__.lower()}: {allowance.name}"
    return ""

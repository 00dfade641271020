"""What the documents let pass: each allowance is one sentence, one function, and one place in
docs/guarantees.md.

Invariant: an allowance looks at what users saw and at the faults, as near to the message as they tell. Must
not know: how problems are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from brokerweave.sim.users_view.doubled import Doubled
from brokerweave.sim.users_view.faults import NOTICED_SECONDS, FaultLog
from brokerweave.sim.users_view.history import Connection, History, PublishedMessage, Sending
from brokerweave.sim.users_view.lost import Lost
from brokerweave.sim.users_view.order import OutOfOrder

Problem = Lost | Doubled | OutOfOrder
RULES = {Lost: "lost", Doubled: "doubled", OutOfOrder: "order"}

HEARD_SECONDS = 0.1
"""Until all sites in reach know what a client has answered, or where it is."""
RESTORED_SECONDS = 3.0
"""After a death, until each message has all its copies again."""
MOVED_SECONDS = 5.0
"""Before a will, for how long who moved may get it at both sites."""
COMPARED_SECONDS = 5.0
"""After a fault, until sites have compared what is retained."""
PASSED_SECONDS = 1.0
"""Until what waited for a link, or for a client, has passed."""
BROKER_SECONDS = 0.1
"""Until a node has its broker's answer."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    history: History
    faults: FaultLog

    def stays(self, client: str, since: float) -> list[Connection]:
        """The connections of a client from the one that it had at a time."""
        connections = self.history.connections[client]
        before = [each for each in connections if each.since <= since][-1:]
        return before + [each for each in connections if each.since > since]

    def sites_of(self, client: str, since: float, until: float = inf) -> set[str]:
        return {each.site for each in self.stays(client, since)[:1]} | {
            each.site for each in self.stays(client, since) if each.since <= until
        }

    def believed(self, client: str, publication: PublishedMessage) -> set[str]:
        """Where the sites of its publisher may have taken a subscriber to be when they sent a publication."""
        found = set()
        for origin in publication.sites:
            for stay in reversed([s for s in self.history.connections[client] if s.since <= publication.at]):
                found.add(stay.site)
                if self.faults.clear(origin, stay.site, stay.since) < publication.at:
                    break
        return found

    def due(self, client: str, publication: PublishedMessage) -> float:
        """When a client should have had a publication at the latest, if that was promised."""
        if not self.history.wanted(client, publication):
            return inf
        return self.settled(client, publication.at, publication.acknowledged, publication.sites)

    def settled(self, client: str, at: float, until: float, origins: Iterable[str] = ()) -> float:
        """When all that was for a client at a time should have reached it: once the site where it was
        subscribed had reached those where that came from, or, if it has come since, all others."""
        for connection in self.stays(client, at):
            home, over = connection.site, connection.over
            granted = [at for at in self.history.granted_at[client] if connection.since <= at <= over]
            if not granted:
                continue
            was_there = granted[0] < at
            others = [*(origins if was_there else self.faults.sites), f"{home}/broker"]
            begin = since = max(granted[0], until)
            for _ in others:  # each may be clear only after another one is
                since = max(self.faults.clear(home, other, since) for other in others)
            since += HEARD_SECONDS if was_there and since == begin else PASSED_SECONDS
            if since <= over:
                return since
        return inf

    def restored(self, site: str, since: float) -> float:
        """When all that a site had has its copies again, after it died."""
        others = [other for other in self.faults.sites if other != site]
        return RESTORED_SECONDS + max(
            self.faults.clear(one, other, since) for one in others for other in others
        )

    def came(self, late: OutOfOrder, until: float) -> bool:
        """Whether its subscriber came, or subscribed, while a message was on its way, or so shortly before
        that its publisher's node had not heard of that."""
        since = late.publication.at
        connections = [each for each in self.stays(late.client, since) if each.since <= until]
        if len(connections) > 1:
            return True
        ways = [(site, each.site) for site in late.publication.sites for each in connections]
        return any(
            at <= until and any(self.faults.clear(*way, at) >= since for way in ways)
            for at in self.history.granted_at[late.client]
        )


# Lost


def queue_was_full(scene: Circumstances, problem: Problem) -> bool:
    """Its publisher's site counted a message that a full queue for the subscriber's site dropped, or that one
    a message for its broker, just when this should have passed."""
    publication, faults = problem.publication, scene.faults
    if isinstance(problem, OutOfOrder):
        in_turn = problem.receipt.at < publication.acknowledged + PASSED_SECONDS
        if in_turn and not scene.came(problem, problem.receipt.at):
            return False
    due, answered = scene.due(problem.client, publication), publication.acknowledged + HEARD_SECONDS
    homes = scene.sites_of(problem.client, publication.at, due)
    for home in homes | scene.believed(problem.client, publication):
        for origin in publication.sites:
            if any(to == home and publication.at <= at <= answered for at, to in faults.drops[origin]):
                return True
            came = max(answered, faults.clear(origin, home, answered))
            if any(not to and publication.at <= at <= came for at, to in faults.drops[home]):
                return True
    return False


def too_many_died(scene: Circumstances, problem: Lost) -> bool:
    """Before its subscriber could have it, as many sites as there are copies died with what they had, or were
    out of reach, its publisher's or its subscriber's among them."""
    publication, faults = problem.publication, scene.faults
    due = scene.due(problem.client, publication)
    in_time = publication.acknowledged - publication.sent[-1].at < 0.9 * faults.patience
    # What was acknowledged in time had a copy wherever it should: who did not answer was not counted on.
    since = publication.at - (HEARD_SECONDS if in_time else NOTICED_SECONDS)
    homes = scene.sites_of(problem.client, publication.at, due)
    deaths = [(at, site) for site in faults.sites for at in faults.kept_nothing(site, since, due)]
    deaths += [
        (each.since, site)
        for site in homes
        for each in faults.broker_outages(site, since, due)
        if each.lost and each.since >= since
    ]
    connections = scene.history.connections[problem.client]
    deaths += [(one.site_died, one.site) for one, then in pairwise(connections) if not then.resumed]
    origin = publication.sent[-1].site
    away = {other for other in faults.sites if faults.apart(origin, other, publication.at, publication.at)}
    near = homes | publication.sites
    home = scene.stays(problem.client, publication.at)[0].site
    cut_off = any(
        faults.apart(each, home, publication.at, publication.acknowledged) for each in publication.sites
    )
    missing = {home} if cut_off else set()
    # Who was gone only for a moment was still to have a copy; who was gone for longer was replaced.
    before = publication.at - NOTICED_SECONDS
    missing |= {each for each in away if not faults.apart(origin, each, before, before)}
    for at in (died for died, _ in deaths if since <= died <= due):
        gone = missing | {
            other for died, other in deaths if since <= died <= at <= scene.restored(other, died)
        }
        copies = (
            min(faults.copies, len(faults.sites) - len(away)) if in_time else faults.copies - len(away - gone)
        )
        if gone & near and len(gone) >= copies:
            return True
    return False


def not_known_yet(scene: Circumstances, problem: Lost) -> bool:
    """Since the subscription, or since its publisher's node was started with nothing, that node had not
    reached the subscriber's site; or it was published where the subscriber was yet to subscribe again."""
    history, faults = scene.history, scene.faults
    for sending in problem.publication.sent:
        if _yet_to_subscribe(history, problem.client, sending):
            return True
        home = scene.stays(problem.client, sending.at)[0].site
        since = problem.want.since
        for end in faults.nodes[sending.site]:
            empty = bool(faults.kept_nothing(sending.site, end.since, end.since))
            if end.until <= sending.at and (empty or not sending.ready):
                since = max(since, end.until)
        if not sending.ready and faults.apart(sending.site, home, sending.at, sending.at):
            return True
        if faults.clear(sending.site, home, since) >= sending.at:
            return True
    return False


def _yet_to_subscribe(history: History, client: str, sending: Sending) -> bool:
    """Whether a client that had lost its session subscribed again where this was sent to, and only later."""
    later = [at for at in history.granted_at[client] if at > sending.at][:1]
    for before, connection in pairwise(history.connections[client]):
        granted = [at for at in history.granted_at[client] if connection.since <= at <= connection.over]
        if granted[:1] == later != []:
            return before.over <= sending.at and connection.site == sending.site and not connection.resumed
    return False


def session_forgotten(scene: Circumstances, problem: Problem) -> bool:
    """Its subscriber's node lost its disk before it had passed this on, and not its broker the session, and
    the subscriber had not subscribed again."""
    publication, faults, client = problem.publication, scene.faults, problem.client
    if isinstance(problem, Doubled) and _does_not_know(faults, problem.again.connection):
        since = problem.again.connection.since
        here = any(each.connection is problem.again.connection for each in problem.before)
        return here and max(publication.at, problem.again.at - RESTORED_SECONDS) <= scene.settled(
            client, since, since
        )
    for home in scene.sites_of(client, publication.at):
        for outage in faults.nodes[home]:
            granted = [at for at in scene.history.granted_at[client] if at > outage.since]
            known = granted[0] if granted else inf
            if not outage.lost or any(each.lost for each in faults.broker_outages(home, outage.since, known)):
                continue
            if isinstance(problem, Lost):
                arrived = outage.since
            else:
                arrived = (problem.again if isinstance(problem, Doubled) else problem.receipt).at
            if not outage.since <= arrived <= scene.settled(client, outage.since, outage.since):
                continue
            begun = publication.acknowledged
            for way in (*publication.sites, f"{home}/broker"):
                begun = faults.clear(home, way, begun)
            if outage.since <= begun + HEARD_SECONDS and publication.at <= known:
                return True
    return False


def _does_not_know(faults: FaultLog, connection: Connection) -> bool:
    """Whether a client went on with a session that its broker had, and its node, started without its disk, or
    while that failed, did not know."""
    site = connection.site
    ends = [end for end in faults.nodes[site] if end.until <= connection.since][-1:]
    if not (connection.resumed and ends and faults.kept_nothing(site, ends[0].since, ends[0].since)):
        return False
    return not any(each.lost for each in faults.broker_outages(site, ends[0].since, connection.since))


# Doubled


def answer_not_told(scene: Circumstances, problem: Doubled) -> bool:
    """The subscriber's site ended, or it moved from there, before that could tell the others of the answer,
    or they had the message, or they lost that too, and it came again when the subscriber had come again."""
    faults, publication = scene.faults, problem.publication
    for receipt in problem.before:
        site = receipt.connection.site
        ends = [end.since for end in (*faults.nodes[site], *faults.brokers[site])]
        ends += [receipt.connection.until] if receipt.connection.left else []
        died = min((at for at in ends if receipt.at <= at <= problem.again.at), default=inf)
        if died <= receipt.at + HEARD_SECONDS:
            return True
        ways = [(site, receipt.at), *((each.site, each.at) for each in publication.sent)]
        told = max(faults.clear(way, other, at + HEARD_SECONDS) for way, at in ways for other in faults.sites)
        came = problem.again.connection.since
        told = max([told, *_forgotten(scene, site, receipt.at, problem.again.at)])
        settled = (scene.settled(problem.client, died, told), scene.settled(problem.client, came, came))
        if died <= told and problem.again.at <= max(settled):
            return True
    return False


def _forgotten(scene: Circumstances, site: str, since: float, until: float) -> Iterator[float]:
    """When as many sites as there are copies, one of them this, had lost what they had."""
    faults = scene.faults
    deaths = [(at, other) for other in faults.sites for at in faults.kept_nothing(other, since, until)]
    for at, _ in deaths:
        gone = {other for died, other in deaths if died <= at <= scene.restored(other, died)}
        if site in gone and len(gone) >= faults.copies:
            yield at


def in_flight_to_the_broker(scene: Circumstances, problem: Doubled) -> bool:
    """The node of the site where it came again ended, or lost its broker, before it had the broker's
    answer."""
    publication, again = problem.publication, problem.again
    site = again.connection.site
    until = scene.faults.clear(site, f"{site}/broker", problem.before[0].at) + BROKER_SECONDS
    for receipts in scene.history.receipts_of(publication.payload):
        if any(each.connection.site == site and abs(each.at - again.at) < HEARD_SECONDS for each in receipts):
            until = max(until, min(again.at, receipts[0].at))
    for end in (*scene.faults.nodes[site], *scene.faults.brokers[site]):
        passed = scene.faults.clear(site, f"{site}/broker", end.since)
        passed = max(passed, again.connection.since) + PASSED_SECONDS
        if publication.at <= end.since <= until and end.since <= again.at <= passed:
            return True
    return False


def published_again(scene: Circumstances, problem: Doubled | OutOfOrder) -> bool:
    """Its publisher had no answer, and sent it again, or sent the later one elsewhere; unless it had
    reached all other sites before, it comes twice only to clients of the sites where it was published, or
    whose nodes ended."""
    publication = problem.publication
    if isinstance(problem, Doubled):
        sites = {receipt.connection.site for receipt in (*problem.before, problem.again)}
        since, until = publication.at, problem.again.at
        ended = any(since <= end.since <= until for site in sites for end in scene.faults.nodes[site])
        first, *later = publication.sent
        begun = first.at + HEARD_SECONDS
        passed = max(scene.faults.clear(first.site, other, begun) for other in scene.faults.sites)
        again = any(sending.at <= until for sending in later)
        pending = again and later[0].at <= passed
        return again and (ended or pending or bool(sites & publication.sites))
    if publication.sites != problem.behind.sites:
        return scene.due(problem.client, publication) >= problem.behind.at
    return len(publication.sent) > 1


def retained_again(scene: Circumstances, problem: Doubled | OutOfOrder) -> bool:
    """It is retained, and a site got it by comparison, or because its broker had lost it."""
    if not problem.publication.retain and not (isinstance(problem, OutOfOrder) and problem.behind.retain):
        return False
    if isinstance(problem, Doubled):
        compared = problem.again
    else:
        compared = problem.receipt if problem.publication.retain else problem.behind_receipt
        if not problem.publication.retain:
            due = scene.due(problem.client, problem.publication)
            if due < problem.behind.at:
                return False
    site, at = compared.connection.site, compared.at
    return any(
        scene.faults.apart(site, other, at - COMPARED_SECONDS, at)
        for other in (*scene.faults.sites, f"{site}/broker")
    )


def will_of_two(scene: Circumstances, problem: Doubled) -> bool:
    """It is the will of a client whose site was down or out of reach, and its subscriber is at that site, or
    moved."""
    publication, again = problem.publication, problem.again
    if not publication.is_will:
        return False
    sites = scene.sites_of(problem.client, publication.first - MOVED_SECONDS, again.at)
    return len(sites) > 1 or bool(sites & publication.sites)


def kept_out_of_reach(scene: Circumstances, problem: OutOfOrder) -> bool:
    """A site that kept it did not reach the subscriber's before the later one had come: its publisher's,
    which ended; or any, or its publisher's not that one, while its subscriber came, or subscribed."""
    since, until = problem.publication.at, problem.behind_receipt.at
    if scene.due(problem.client, problem.publication) < problem.behind.at:
        return False
    homes = scene.sites_of(problem.client, since, until)
    faults, origins = scene.faults, problem.publication.sites
    cut_off = all(faults.clear(one, home, since) >= until for one in origins for home in homes)
    if cut_off and any(since <= end.since <= until for one in origins for end in faults.nodes[one]):
        return True
    return scene.came(problem, problem.receipt.at) and any(
        faults.apart(one, end, since, until)
        for one in faults.sites
        for end in homes | problem.publication.sites
    )


@dataclass(frozen=True, slots=True)
class Allowance:
    name: str
    anchor: str
    of: tuple[type, ...]
    holds: Callable[..., bool]


ALLOWANCES = (
    Allowance("a full queue dropped it", "qos-1-and-2-local-delivery", (Lost, OutOfOrder), queue_was_full),
    Allowance("as many sites died as there were copies", "sites-that-die", (Lost,), too_many_died),
    Allowance(
        "its publisher's node could not know the subscription", "sites-that-die", (Lost,), not_known_yet
    ),
    Allowance(
        "its node had forgotten its session", "session", (Lost, Doubled, OutOfOrder), session_forgotten
    ),
    Allowance(
        "its site died before others heard of the answer", "sites-that-die", (Doubled,), answer_not_told
    ),
    Allowance("in flight to the broker", "crash", (Doubled,), in_flight_to_the_broker),
    Allowance("its publisher sent it again", "sites-that-die", (Doubled, OutOfOrder), published_again),
    Allowance("retained, and got by comparison", "retained", (Doubled, OutOfOrder), retained_again),
    Allowance("a will that two sites published", "will", (Doubled,), will_of_two),
    Allowance("kept where its subscriber's site was out of reach", "order", (OutOfOrder,), kept_out_of_reach),
)


def why(problem: Problem, history: History, faults: FaultLog) -> str:
    """The allowance that holds, by its name; empty if there is none."""
    scene = Circumstances(history, faults)
    for allowance in ALLOWANCES:
        if isinstance(problem, allowance.of) and allowance.holds(scene, problem):
            return f"{RULES[type(problem)]}: {allowance.name}"
    return ""

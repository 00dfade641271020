"""In a mesh: what a node redelivers to a client, although the client or its broker has it.

Owns why a client may get a message twice because a node thought that it had missed it. Invariant: what a
client has is redelivered only for a reason, and each reason explains one repetition (`RepeatAllowances`).
Must not know: in what order it arrives (`order_in_a_mesh`).
"""

from __future__ import annotations

from math import inf

from brokerweave.sim.client import ModelClient
from brokerweave.sim.facts import Facts
from brokerweave.sim.promises import Broken
from brokerweave.sim.repeat_allowances import RepeatAllowances
from brokerweave.sim.retained import compared


class RedeliveryRules:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.repeats = RepeatAllowances({}, lambda node, other: False)
        self._redelivered: dict[tuple[str, bytes], str] = {}
        """What nodes gave to a client, and why its broker may give it, too."""
        self._allowed: set[tuple[str, bytes]] = set()
        """What was given to a client again, for a reason, and is on its way."""

    def was_given(self, client: str, payload: bytes) -> bool:
        """Whether a node gave it to a client that did not have it."""
        return (client, payload) in self._redelivered

    def check_given(self, node: str, client_id: str, payloads: list[bytes]) -> None:
        """What was on its way to a client when its connection ended may come to it again."""
        facts = self._facts
        for payload in filter(None, payloads):
            key = (client_id, payload)
            if facts.deliveries[key]:
                if key not in self._allowed:  # else it was given before, and did not arrive
                    why = self.repeats.explain(*key) or self._came_another_way(payload)
                    why = why or self._forgot_session(node, *key) or self._forgot_others(node, *key)
                    why = why or self._had_before_a_kill(node, *key)
                    if not why:
                        raise Broken(f"{node} gives {payload!r} to {client_id}, which has it")
                    facts.allowances[f"doubled: {why}"] += 1
                    self._allowed.add(key)
                self._redelivered.pop(key, None)
            else:
                self._redelivered[key] = self._why_broker_may_give(node, payload)
            facts.given[key] += 1

    def _why_broker_may_give(self, node: str, payload: bytes) -> str:
        facts = self._facts
        origins = {key[0] for key in facts.publications[payload].keys}
        if not all(facts.reaches(node, each) for each in origins):
            return "redelivered while its origin was out of reach"
        if any(visit.local for visit in facts.visits[node, payload]) and not facts.takes[node, payload]:
            return "redelivered while a slow broker was given it"
        return ""

    def delivered(self, client: ModelClient, payload: bytes) -> None:
        self._allowed.discard((client.name, payload))
        self.repeats.delivered(client.name, payload, self._facts.now, client.site)

    def check_delivered_again(self, client: ModelClient, payload: bytes) -> None:
        """It came to a client from its broker, and because it missed it."""
        facts = self._facts
        publication = facts.publications[payload]
        if publication.is_will and facts.first_hand[publication.site, payload]:
            facts.allowances["doubled: a will of a node that died before its broker"] += 1
        elif why := self._redelivered.pop((client.name, payload)):
            # Who sent it sends it to the site, too, once it can.
            facts.allowances[f"doubled: {why}"] += 1
        elif why := self.repeats.explain(client.name, payload) or self._came_another_way(payload):
            facts.allowances[f"doubled: {why}"] += 1
        elif compared(facts, client.site, publication):
            facts.allowances["doubled: its broker had lost what it was to retain, and got it again"] += 1
        elif any(
            end.ever_failed or end.disk_failed or not end.disk_kept for end in facts.ends[client.site][-1:]
        ):
            # Row "failing disk", also at its start: it knew where the client was before, and took its session
            # for a new one.
            facts.allowances["doubled: its node had forgotten a session that the broker had"] += 1
        else:
            raise Broken(f"{client.name} got {payload!r} from its broker, and redelivered")

    def _forgot_session(self, node: str, client_id: str, payload: bytes) -> str:
        """Rows "crash" and "failing disk": a node that came back without its disk, or could not read it, does
        not know a session that its broker has, nor if it is restarted once more; it may hear that the client
        was elsewhere when that has something from the broker already."""
        facts = self._facts
        forgot = [end.at for end in facts.ends[node] if end.disk_failed or not end.disk_kept]
        lost = any(at > max(facts.broker_losses[node], default=0.0) for at in forgot)
        session = any(c.name == client_id and c.persistent for c in facts.sites_clients(node))
        known = lost and session and self.repeats.got_here(client_id, payload, node, facts.starts[node])
        return "its node had forgotten a session that the broker had" if known else ""

    def _had_before_a_kill(self, node: str, client_id: str, payload: bytes) -> str:
        """Decision 0011, "A publisher that resends": its broker delivered it in a session that ended with its
        node, before that had passed it on. Sent again, the broker delivers it to nobody, and its node, which
        does not know who had it, gives it to those who subscribed since."""
        facts, started = self._facts, self._facts.starts[node]
        publication, got_at = facts.publications[payload], self.repeats.got_at(client_id, payload)
        sent_again = publication.qos == 2 and publication.resent
        clean = any(c.name == client_id and not c.persistent for c in facts.sites_clients(node))
        here = self.repeats.got_here(client_id, payload, node, 0.0)
        taken = any(at < started for at in facts.first_hand[node, payload])
        passed_on = any(visit.at < started for visit in facts.visits[node, payload])
        if sent_again and clean and here and got_at < started and taken and not passed_on:
            return "its broker had delivered it when its node was killed, and it was sent again"
        return ""

    def _forgot_others(self, node: str, client_id: str, payload: bytes) -> str:
        """Decision 0011: a node that was restarted does not know what its broker was given before for the
        sake of others, by who did not know that the client is here. Its session has that, too."""
        facts = self._facts
        session = any(c.name == client_id and c.persistent for c in facts.sites_clients(node))
        taken = min(facts.takes[node, payload], default=inf)
        kept = not any(at >= taken for at in facts.broker_losses[node])
        before = taken < facts.starts[node] and node in facts.given_at[client_id, payload]
        if not (session and kept and before) or (client_id, node) in facts.meant[payload]:
            return ""
        return "its broker was given it for others, before its node was restarted"

    def _came_another_way(self, payload: bytes) -> str:
        """Why the copy that a client has may not be the one that is kept for it."""
        facts = self._facts
        publication = facts.publications[payload]
        first_hand = [site for site in publication.sites if facts.first_hand[site, payload]]
        if len(publication.keys) > 1 or len(first_hand) > 1:  # a node may die before it passes it on
            return "its publisher had no answer when a site died, and sent it again"
        elsewhere = any(key[0] != publication.site for key in publication.keys)
        if publication.is_will and elsewhere and facts.first_hand[publication.site, payload]:
            return "a will that its own site published, and one that could not reach it"
        repaired = any(visit.repair for visits in facts.visits_of(payload) for visit in visits)
        return "its site had got it by comparison" if publication.retain and repaired else ""

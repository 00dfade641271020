"""In a mesh: a publication that its publisher, or another node, sends again is recognised.

Owns the reasons for which a node, or its broker, may take such a publication for a new one. Must not know:
what is redelivered to a client that comes back (`redelivery`).
"""

from __future__ import annotations

from brokerweave.sim.facts import Facts, ModelPublication, Visit
from brokerweave.sim.promises import Broken
from brokerweave.sim.watching import Key


class Resent:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def check_node(
        self, node: str, came_from: str | None, publication: ModelPublication, key: Key, before: list[Visit]
    ) -> None:
        """A node is about to act on a publication."""
        facts = self._facts
        others = [visit for visit in before if visit.key != key and visit.local and not visit.repair]
        if publication.is_will and facts.first_hand[node, publication.payload]:
            others = before  # its broker published it
        if not others or publication.qos == 0 or key[1] == 0 or came_from is None:
            return  # what was sent again here goes on to the others, under its old name
        if any(end.at >= others[0].at for end in facts.ends[node]):
            facts.allowances["doubled: sent again to a node that was restarted"] += 1  # memory only
        elif publication.is_will and self._lost_its_broker(publication):
            facts.allowances["doubled: a will that a broker published which its node had lost"] += 1
        elif publication.is_will or publication.resent:
            raise Broken(f"{node} acts on {publication.payload!r} again, as {key} after {others[-1].key}")

    def _lost_its_broker(self, will: ModelPublication) -> bool:
        """Whether a node lost its broker just when that published a will: it may have died before."""
        facts = self._facts
        published = list(facts.first_hand[will.site, will.payload])
        visits = facts.visits[will.site, will.payload]
        published += [visit.at for visit in visits if visit.came_from is None]  # when the node noticed
        return any(abs(at - lost) < 1.0 for at in published for lost in facts.injector_losses[will.site])

    def check_broker(self, site: str, payload: bytes) -> None:
        """What a broker had from its node it does not get from the publisher, who sends it again."""
        facts = self._facts
        from_node = [visit for visit in facts.visits[site, payload] if visit.local and visit.came_from]
        before = [visit.at for visit in from_node if not visit.repair]
        if not before:  # row "retained": who sent what an index lacked is not known
            if from_node:
                facts.allowances["doubled: sent again to a site that had got it by comparison"] += 1
            return
        publication = facts.publications[payload]
        if any(end.at >= before[0] for end in facts.ends[site]):
            facts.allowances["doubled: sent again to a node that was restarted"] += 1
        elif publication.is_will and any(end.at >= publication.at for end in facts.ends[site]):
            # Row "will": the node was restarted, and does not know what its broker is about to publish.
            facts.allowances["doubled: a will that a broker published since its node was restarted"] += 1
        else:
            raise Broken(f"the broker of {site} got {payload!r} from its publisher, after it had it")

    def known(self, node: str, payload: bytes) -> bool:
        """Whether a node need not act on something: the will of a client of its own, which its broker
        publishes, or what was sent to it as its publisher's node."""
        facts = self._facts
        publication = facts.publications.get(payload)
        if publication is None or node not in publication.sites:
            return False
        return publication.is_will or bool(facts.first_hand[node, payload])

"""Messages that reach a node, or a broker, more than once.

Owns the rows "crash", "failing disk" and "QoS 0" of docs/guarantees.md as far as they allow duplicates.
Invariant: a repetition is accepted only for a reason that happened between the two copies. Must not know:
what clients get.
"""

from __future__ import annotations

from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Publish
from brokerweave.sim.facts import Facts, ModelPublication, Visit
from brokerweave.sim.promises import Broken
from brokerweave.sim.watching import Key


class Doubling:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._floods: set[tuple[str, int, Key]] = set()

    def check_flood(self, node: str, view: int, payload: bytes, key: Key) -> None:
        view += len(self._facts.ends[node]) << 32
        if payload and (node, view, key) in self._floods:
            raise Broken(f"{node} floods {payload!r} twice while the tree stays the same")
        self._floods.add((node, view, key))

    def check_forwarded(self, node: str, publication: ModelPublication, before: list[Visit]) -> None:
        """Its own node forwards a publication again."""
        facts, payload = self._facts, publication.payload
        if not publication.resent and any(e.disk_failed for e in facts.ends_since(node, before[0].at)):
            # It had waited for its route, and nobody could write that it waits no longer.
            facts.allowances["doubled: a node was killed while its disk failed"] += 1
            facts.unread[payload].setdefault(node, before[0].at)
            return
        if not publication.resent:
            raise Broken(f"{node} forwards {payload!r} twice, though its publisher sent it once")
        if publication.qos == 2:
            killed = [end for end in facts.ends_since(node, before[0].at) if not facts.keeps_ids(end)]
            if not killed:
                raise Broken(f"{node} forwards the QoS 2 message {payload!r} again after its publisher did")
            # Rows "crash" (without its disk) and "failing disk".
            facts.allowances["doubled: QoS 2 publisher sent again to a killed node"] += 1
        else:
            facts.allowances["doubled: QoS 1 publisher sent again"] += 1

    def check_passed_on(
        self, node: str, came_from: str, publication: ModelPublication, since: float, run: Run
    ) -> None:
        """The same message under the same number again: only a node that forgot may let it pass (rows
        "crash", without its disk, and "failing disk"; row "QoS 0" for what shares a run with QoS 1)."""
        facts = self._facts
        ends = facts.ends_since(node, since)
        text = f"{node} passes on {publication.payload!r} again"
        forgot = [end for end in ends if not facts.keeps_window(end)]
        same_way = facts.visits[node, publication.payload][-1].came_from == came_from
        same_way &= publication.payload not in facts.bypassed
        if not run.max_qos and same_way and not any(end.disk_failed for end in forgot):
            raise Broken(f"{text}, though it is QoS 0")
        if not run.max_qos and not same_way and not all(end.graceful for end in ends):
            facts.allowances["doubled: QoS 0, by another way, to a node that was killed"] += 1  # row "QoS 0"
            return
        if not forgot:
            raise Broken(f"{text}, though it should remember it")
        if any(not end.disk_kept for end in forgot):
            facts.allowances["doubled: a node lost its disk"] += 1
        elif any(end.disk_failed for end in forgot):
            facts.allowances["doubled: a node was killed while its disk failed"] += 1
        elif facts.ends_since(came_from, since):
            facts.allowances["doubled: both ends of a link were restarted"] += 1
        else:
            raise Broken(f"{text}, though {came_from} knew how far it had got")

    def check_injected(self, site: str, message: Publish) -> None:
        """A broker got a message from its node, as `takes` has it by now."""
        facts, payload = self._facts, message.payload
        takes = facts.takes[site, payload]
        asked = sum(visit.local for visit in facts.visits[site, payload])
        if facts.publications[payload].retain and len(takes) > asked:
            # Row "retained": all brokers end with the same message, whatever that takes.
            facts.allowances["retained: injected again to correct a broker"] += 1
            return
        if not asked:
            raise Broken(f"{site} injects {payload!r}, which it was not to")
        if len(takes) <= asked:
            return
        # Row "crash": QoS 1 in flight may double, QoS 2 only where the disk (or the broker's state) was lost.
        # Each time that happens, it may happen to each copy that the node had by then.
        since = takes[0]
        ends = [end for end in facts.ends_since(site, since) if payload in end.held]
        doubting = [end.at for end in ends if message.qos == 1 or end.ever_failed or not end.disk_kept]
        restarts = self._copies(site, payload, doubting)
        losses = self._copies(site, payload, [at for at in facts.broker_losses[site] if at >= since])
        # What is on its way when the node hangs up the broker may read later than that.
        cuts = self._copies(site, payload, facts.injector_losses[site] if message.qos == 1 else [])
        if len(takes) - asked > restarts + losses + cuts:
            raise Broken(f"the broker of {site} got {payload!r} (QoS {message.qos}) {len(takes)} times")
        name = "node restarted" if restarts else "broker lost its state" if losses else "QoS 1 cut"
        facts.allowances[f"doubled: in flight to the broker, {name}"] += 1

    def _copies(self, site: str, payload: bytes, times: list[float]) -> int:
        """How many copies for its broker a node had got by each of these times, in sum: a publisher that
        sends a message again makes another copy."""
        visits = [visit.at for visit in self._facts.visits[site, payload] if visit.local]
        return sum(at <= time for time in times for at in visits)

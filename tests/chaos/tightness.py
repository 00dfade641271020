"""How much the checker of mesh runs would notice: it is told of runs in which one thing more went wrong.

Of each run that holds, one delivery at a time is taken away, made twice, or swapped with the next one of its
publisher, and the checker judges again. `python -m tests.chaos.tightness` prints what part it objects to.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from brokerweave.sim.run import SimOptions, Simulation, plan, play
from brokerweave.sim.schedule import FAULTS, SPLIT
from brokerweave.sim.users_view.history import History, Receipt
from brokerweave.sim.users_view.view import UsersView

EACH = 25
"""Of each kind, in each run."""
Change = Callable[[History, Random], Iterator[str]]


@contextmanager
def lost(history: History, random: Random) -> Iterator[str]:
    """A client did not get what it was promised."""
    promised = [(c, p.payload) for c, p, _ in history.promised() if history.receipts[c, p.payload]]
    key = random.choice(promised)
    receipts, history.receipts[key] = history.receipts[key], []
    yield f"{key[1]!r} is taken from {key[0]}"
    history.receipts[key] = receipts


@contextmanager
def doubled(history: History, random: Random) -> Iterator[str]:
    """It got something again, when it got something else."""
    client, receipt = _any(history, random)
    later = [each for each in history.got[client] if each.at >= receipt.at]
    again = replace(random.choice(later), payload=receipt.payload, qos=receipt.qos)
    key = (client, receipt.payload)
    receipts = history.receipts[key]
    history.receipts[key] = sorted([*receipts, again], key=lambda each: each.at)
    yield f"{client} gets {receipt.payload!r} again"
    history.receipts[key] = receipts


@contextmanager
def swapped(history: History, random: Random) -> Iterator[str]:
    """It got two messages of a publisher in the wrong order."""
    client, first, second = random.choice(list(_neighbours(history)))
    got = history.got[client]
    changed = {
        id(first): replace(first, payload=second.payload),
        id(second): replace(second, payload=first.payload),
    }
    history.got[client] = [changed.get(id(each), each) for each in got]
    yield f"{client} gets {second.payload!r} before {first.payload!r}"
    history.got[client] = got


def _any(history: History, random: Random) -> tuple[str, Receipt]:
    return random.choice([(client, each) for client, got in history.got.items() for each in got])


def _neighbours(history: History) -> Iterator[tuple[str, Receipt, Receipt]]:
    """Each two messages of a stream that a client got one after the other."""
    for client, got in history.got.items():
        last: dict[tuple[str, str, int], Receipt] = {}
        seen: set[bytes] = set()
        for receipt in got:
            publication = history.publications[receipt.payload]
            if publication.is_will or receipt.payload in seen:
                continue
            seen.add(receipt.payload)
            stream = (publication.client, publication.topic, publication.qos)
            if stream in last:
                yield client, last[stream], receipt
            last[stream] = receipt


CHANGES = {"lost": lost, "doubled": doubled, "out of order": swapped}


def objections(
    view: UsersView, random: Random, each: int = EACH
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """How many changes of each kind were tried, to how many the checker objected, and why not."""
    tried: Counter[str] = Counter()
    found: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    before: Counter[str] = Counter()
    broken = len(view.judge(before))
    for kind, change in CHANGES.items():
        for _ in range(each):
            with change(view.history, random):
                allowed: Counter[str] = Counter()
                tried[kind] += 1
                if len(view.judge(allowed)) > broken:
                    found[kind] += 1
                passed.update({f"{kind}, {why}": n for why, n in (allowed - before).items()})
    return tried, found, passed


def measure(
    seeds: range, nodes: int, faults: tuple[str, ...] = FAULTS, each: int = EACH
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    totals: tuple[Counter[str], Counter[str], Counter[str]] = (Counter(), Counter(), Counter())
    for seed in seeds:
        options = SimOptions("mesh", nodes, frozenset(faults))
        simulation = Simulation(seed, options)
        play(simulation, plan(seed, options))
        assert simulation.view is not None
        for total, one in zip(totals, objections(simulation.view, Random(seed), each), strict=True):
            total.update(one)
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", action="store_true")
    given = parser.parse_args()
    faults = (*FAULTS, SPLIT) if given.split else FAULTS
    tried, found, passed = measure(range(given.seed, given.seed + given.seeds), given.nodes, faults)
    for kind in CHANGES:
        print(f"{kind}: {found[kind]} of {tried[kind]} seen, {found[kind] / tried[kind]:.1%}")
    for why, count in passed.most_common():
        print(f"  {why}: {count}")


if __name__ == "__main__":
    main()

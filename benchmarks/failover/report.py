"""How a run of the failover benchmark is shown, and whether it kept what `mesh` promises.

Must not know: how it was run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.failover.account import Account, spread
from benchmarks.failover.scene import Plan

IN_FLIGHT = 20
"""What Mosquitto sends a client of MQTT 3.1.1 before it is acknowledged: no more than this may come twice."""

ENDS = {
    "site": "killed",
    "broker": "brokers killed",
    "node": "nodes killed",
    "drain": "drained",
    "stall": "stalled",
}

Run = tuple[Plan, Account]


def faults(plan: Plan, found: Account) -> list[str]:
    """What broke the promise that everything acknowledged arrives, and once. Empty: nothing."""
    wrong = []
    if found.lost and plan.subscribe_qos:  # at QoS 0 nothing is promised, only counted
        wrong.append(f"{found.lost} lost")
    if found.never_sent:
        wrong.append(f"{found.never_sent} never sent")
    for number, each in enumerate(found.rounds, 1):
        if each.doubled_at_survivors:
            wrong.append(f"kill {number}: {each.doubled_at_survivors} doubled at survivors")
        if each.doubled_most > IN_FLIGHT:
            wrong.append(f"kill {number}: {each.doubled_most} doubled at one client")
        if each.doubled_stale:
            wrong.append(f"kill {number}: {each.doubled_stale} doubled that were not in flight")
        if each.never_back:
            wrong.append(f"kill {number}: {each.never_back} never came back")
    return wrong


def harm(found: Account) -> Iterator[str]:
    """One line for each loss or repeat that should not be, as far as they were described."""
    for number, each in enumerate(found.rounds, 1):
        for one in each.harm:
            yield f"kill {number} ({' and '.join(each.kill.nodes)}): " + ", ".join(
                f"{name} {value}" for name, value in asdict(one).items()
            )


def title(plan: Plan) -> str:
    shape = f"{plan.topics} topics x {plan.subscribers}"
    copies = f", {plan.copies} copies" if plan.strategy == "mesh" else ""
    return (
        f"{plan.strategy}{copies}: {shape}, {plan.rate:g}/s, QoS {plan.publish_qos} to {plan.subscribe_qos}, "
        f"{plan.kills} x {plan.at_once} of {plan.sites} {ENDS[plan.how]}"
    )


def table(runs: Iterable[Run]) -> Table:
    """One column a run."""
    shown = list(runs)
    made = Table("", *(title(plan) for plan, _ in shown))
    columns = [list(_cells(plan, found)) for plan, found in shown]
    for cells in zip(*columns, strict=True):
        made.add_row(cells[0][0], *(text for _, text in cells))
    return made


def _cells(plan: Plan, found: Account) -> Iterator[tuple[str, str]]:
    rounds = found.rounds
    returns = [each for one in rounds for each in one.returns]
    yield "acknowledged", f"{found.acknowledged} of {found.published}"
    yield "sent again by publishers", str(found.resent)
    yield "lost, of what was acknowledged", f"{found.lost} ({found.lost / max(1, found.delivered):.4%})"
    yield "  at subscribers of surviving nodes", str(sum(each.lost_at_survivors for each in rounds))
    yield "  past PUBREC only", str(sum(each.lost_unfinished for each in rounds))
    most = max((each.doubled_most for each in rounds), default=0)
    yield "doubled at clients of dead nodes", f"{sum(each.doubled for each in rounds)}"
    yield "  most at one, of at most", f"{most} of {IN_FLIGHT}"
    yield "  not in flight at the kill", str(sum(each.doubled_stale for each in rounds))
    yield "  oldest, ms before the kill", _ms(max((each.doubled_oldest for each in rounds), default=0.0))
    shaken = f"{sum(each.doubled_at_shaken for each in rounds)} at {sum(each.shaken for each in rounds)}"
    yield "  at clients cut off later, by no kill", shaken
    yield "doubled at surviving nodes", str(sum(each.doubled_at_survivors for each in rounds))
    yield "out of order", str(found.misplaced)
    yield "worst gap, ms: dead node's client", _ms(max((each.gap for each in rounds), default=0.0))
    yield "  neither end at a dead node", _ms(max((each.gap_at_survivors for each in rounds), default=0.0))
    yield "subscribers cut off", str(len(returns))
    yield "kill to close, ms: median, worst", _spread(each.closed for each in returns)
    yield "close to CONNACK", _spread(each.connected for each in returns)
    yield "CONNACK to SUBACK", _spread(each.subscribed for each in returns)
    yield "SUBACK to first owed", _spread(each.first_owed for each in returns)
    yield "SUBACK to last owed", _spread(each.all_owed for each in returns)
    yield "client's part: kill to CONNACK", _spread(each.theirs for each in returns)
    yield "our part: CONNACK to first owed", _spread(each.ours for each in returns)
    yield "  subscribers owed something", str(sum(each.owed > 0 for each in returns))
    for name in ("before", "during", "after"):
        rates = [float(getattr(each, name)) for each in rounds]
        yield f"deliveries/s {name}: mean, least", f"{_mean(rates):.0f}, {min(rates, default=0.0):.0f}"
    kept = min((each.during / each.before for each in rounds if each.before), default=0.0)
    yield "  during / before at worst; living share", f"{kept:.2f}; {1 - plan.at_once / plan.sites:.2f}"
    yield "load late at worst, ms", _ms(found.late)
    yield "promise of mesh", "; ".join(faults(plan, found)[:3]) or "kept"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _spread(values: Iterable[float | None]) -> str:
    found = spread(values)
    return "-" if found is None else f"{_ms(found[0])}, {_ms(found[1])}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def as_json(runs: Iterable[Run], facts: dict[str, str]) -> dict[str, Any]:
    return {
        "facts": facts,
        "runs": [
            {"plan": asdict(plan), "account": asdict(found), "faults": faults(plan, found)}
            for plan, found in runs
        ],
    }

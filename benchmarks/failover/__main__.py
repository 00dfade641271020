"""`python -m benchmarks.failover`: kill sites under load, and print what that cost their clients.

Four nodes with Mosquittos behind HAProxy, and publishers and subscribers that come back by themselves (after
section 5.6 of the thesis that `mesh` follows). Without flags: one site in turn, three times, with 200 pairs
at 2,000 publications a second. `--whole` runs all that the project promises of `mesh`. Ends with 1 if a run
with `mesh` broke its promise; other strategies promise nothing of the kind and are there to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.failover.account import account
from benchmarks.failover.report import ENDS, Run, as_json, faults, harm, table, title
from benchmarks.failover.scene import Plan, run

QOS = ((1, 1), (2, 2), (1, 0))
DEATHS = ((1, 2), (2, 3))
"""Sites killed at once, and copies that outlast them."""
FAN = 10


def plans(flags: argparse.Namespace) -> Iterator[Plan]:
    for strategy in flags.strategy or ["sf"]:
        plan = Plan(
            strategy=strategy,
            topics=flags.topics,
            subscribers=flags.subscribers,
            rate=flags.rate,
            publish_qos=flags.qos,
            subscribe_qos=flags.qos if flags.subscribe_qos is None else flags.subscribe_qos,
            persistent=flags.persistent,
            delivery=flags.delivery,
            kills=flags.kills,
            at_once=flags.at_once,
            copies=flags.copies or flags.at_once + 1,
            calm=flags.calm,
            watched=flags.watched,
            how=flags.how,
        )
        yield from _whole(plan) if flags.whole else (plan,)


def _whole(plan: Plan) -> Iterator[Plan]:
    fan = replace(plan, topics=plan.topics // FAN, subscribers=FAN, rate=plan.rate / FAN)
    for shape in (plan, fan):
        for at_once, copies in DEATHS:
            for publish, subscribe in QOS:
                yield replace(
                    shape, at_once=at_once, copies=copies, publish_qos=publish, subscribe_qos=subscribe
                )


def main(arguments: Sequence[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    facts = {**machine.facts(), "load average": f"{os.getloadavg()[0]:.1f}"}
    console.print(*(f"{name} {value};" for name, value in facts.items()))
    runs: list[Run] = []
    broken = False
    with machine.one_benchmark():
        for plan in plans(flags):
            print(title(plan), file=sys.stderr)
            record, kills = run(plan, lambda text: print(f"  {text}", file=sys.stderr))
            runs.append((plan, account(record, kills, plan.calm)))
            broken |= plan.strategy == "mesh" and bool(faults(*runs[-1]))
            console.print(table(runs[-1:]))
            if plan.strategy == "mesh":
                for line in harm(runs[-1][1]):
                    print(line, file=sys.stderr)
            if flags.json is not None:
                flags.json.write_text(json.dumps(as_json(runs, facts), indent=1) + "\n")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--strategy", action="append", help="may be repeated; default: sf")
    parser.add_argument("--topics", type=int, default=200, help="each with one publisher")
    parser.add_argument("--subscribers", type=int, default=1, help="of each topic")
    parser.add_argument("--rate", type=float, default=2000.0, help="publications a second, in all")
    parser.add_argument("--qos", type=int, choices=(1, 2), default=1)
    parser.add_argument("--subscribe-qos", type=int, choices=(0, 1, 2), help="default: as --qos")
    parser.add_argument("--persistent", action="store_true", help="clients ask to keep their sessions")
    parser.add_argument(
        "--delivery", choices=("local", "cluster"), default="cluster", help="mesh has its own"
    )
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="sites killed at once")
    parser.add_argument("--copies", type=int, help="mesh's; default: one more than are killed at once")
    parser.add_argument("--calm", type=float, default=3.0, help="seconds before each kill")
    parser.add_argument("--watched", type=float, default=4.0, help="seconds after each, before the restart")
    parser.add_argument("--how", choices=tuple(ENDS), default="site", help="what ends")
    parser.add_argument("--whole", action="store_true", help="both shapes, one and two sites, each QoS")
    parser.add_argument("--json", type=Path, help="also write all figures here")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Do the quick search and the paper's agree on Mosquitto? `python -m benchmarks.agreement`.

Owns the comparison: the paper's search once, and the quick one over and over meanwhile, a measurement of each
in turn at the same broker. So a machine that is slower for some minutes is slower for both. Neither is told
where to begin. The limit is the network's in half of the rounds, which is as fast at any time, and the
processor's in the others. Ends with 1 where they are further apart than the paper's error, or the quick one
needed more than half of the measurements. Must not know: how either decides.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks import machine
from brokerweave.bench.folder import RunFolder
from brokerweave.bench.limit import SEARCHES, Found, searching
from brokerweave.bench.patterns import one_place
from brokerweave.bench.scenario import Scenario
from brokerweave.bench.servers import serving

GOAL, GOAL_MEASUREMENTS = 0.05, 0.5
HELD = {
    "network": replace(one_place("by network"), bandwidth=8.0),
    "cpu": one_place("by CPU", quota=1.0),
}
Steps = Generator[None, None, Found]


@dataclass(frozen=True, slots=True)
class Round:
    exact: Found
    quick: list[Found]

    @property
    def apart(self) -> float:
        """By how much the middle one of the quick searches is above the paper's."""
        return median(map(_rate, self.quick)) / _rate(self.exact) - 1

    @property
    def part(self) -> float:
        """Of the paper's measurements, those that a quick search needed."""
        return median(each.measurements for each in self.quick) / self.exact.measurements

    def __str__(self) -> str:
        quick = ", ".join(f"{_rate(each):,.0f} ({each.measurements})" for each in self.quick)
        exact = f"{_rate(self.exact):,.0f} ({self.exact.measurements})"
        return f"exact {exact}; adaptive {quick}: {self.apart:+.1%}, {self.part:.2f} of the measurements"


def compared(scenario: Scenario, folder: RunFolder) -> Round:
    """One round: the paper's search to its end, and as many quick ones as ended meanwhile."""

    def begun(kind: str, repeat: int = 0) -> Steps:
        name = f"{scenario.name}, {kind}"
        return searching(scenario, target, folder, SEARCHES[kind](), _tell, name, repeat)

    with serving(scenario, _tell) as target:
        exact, quick, ended = begun("exact"), begun("adaptive"), list[Found]()
        found: Found | None = None
        while found is None or not ended:
            found = found or _step(exact)
            if (one := _step(quick)) is not None:
                ended.append(one)
                quick = begun("adaptive", len(ended))
        return Round(found, ended)


def _step(search: Steps) -> Found | None:
    """One more measurement; what was found, if that was the last."""
    try:
        return next(search)
    except StopIteration as end:
        found: Found = end.value
        return found


def _rate(found: Found) -> float:
    if found.best is None:
        raise SystemExit(f"{found.name}: no rate was under the limit")
    return found.best.counters.ingress_per_s


def _tell(text: str) -> None:
    if text.endswith("\n"):
        print(text, end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="The quick search beside the paper's, on Mosquitto.")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind; default %(default)s")
    parser.add_argument("--by", choices=HELD, action="append", help="what holds it back; default: each")
    given = parser.parse_args()
    print(*(f"{name} {value};" for name, value in machine.facts().items()))
    missed = False
    with machine.one_benchmark():
        for scenario in (HELD[by] for by in given.by or HELD):
            done = list[Round]()
            for _ in range(given.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    done.append(compared(scenario, RunFolder(Path(folder))))
                print(f"{scenario.name}: {done[-1]}", flush=True)
            apart, part = median(each.apart for each in done), max(each.part for each in done)
            print(f"{scenario.name}, in the middle: {apart:+.1%}, {part:.2f} of the measurements at most")
            missed |= abs(apart) > GOAL or part > GOAL_MEASUREMENTS
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.relay`: Mosquitto alone, and HAProxy, a node or a gateway before it; side by side.

Owns the order of the runs and the command line. The ways take turns in every round, so that a noisy machine
disturbs all alike. Two parts: the steady load (CPU for each message, latency), and the highest rate that
holds while the broker has a tenth of a core. Exit code 0 when everything was measured, also where a target
is missed; `--strict` makes a missed target 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.relay import report
from benchmarks.relay.measure import Load, Sample, sample
from benchmarks.relay.meter import hold, preferred
from benchmarks.relay.scene import Scene, Way, scene
from benchmarks.relay.search import highest

HOLDS = 0.99
WORTH_A_SECOND_TRY = 0.90  # less than this is no disturbance, but a broker that cannot
DISTURBED = 0.25  # cores that others used: such a run is repeated,
TRIES = 3  # at most so often


@dataclass(slots=True)
class Options:
    rate: float = 5000.0
    rounds: int = 5
    seconds: float = 8.0
    searches: int = 3
    probe_seconds: float = 4.0
    share: float = 0.10
    tick: float = 0.002
    eager: bool = True
    start: float = 2000.0


@dataclass(slots=True)
class Outcome:
    """Everything measured, by the name of the way."""

    steady: dict[str, list[Sample]] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_steady(stage: Scene, options: Options, outcome: Outcome, say: Callable[[str], None]) -> None:
    for number in range(options.rounds):
        for way in stage.ways:
            got = calm_sample(stage, way, options)
            outcome.steady.setdefault(way.name, []).append(got)
            say(
                f"round {number + 1}: {way.name}: relay {got.relay_us:.2f} µs, "
                f"median {got.median_ms:.3f} ms, p99 {got.p99_ms:.2f} ms, "
                f"egress {got.held:.3f}, lost {got.lost}, others {got.others:.2f}"
            )


def calm_sample(stage: Scene, way: Way, options: Options) -> Sample:
    """The first run that nothing else on the machine disturbed; failing that, the least disturbed."""
    tries: list[Sample] = []
    load = Load(options.rate, options.seconds, options.tick, options.eager)
    for _ in range(TRIES):
        tries.append(sample(stage, way, load))
        if tries[-1].others < DISTURBED:
            break
    return min(tries, key=lambda got: got.others)


def note_disturbance(outcome: Outcome) -> None:
    runs = [got for samples in outcome.steady.values() for got in samples]
    disturbed = sum(got.others >= DISTURBED for got in runs)
    reasons = {got.bottleneck for got in runs if got.bottleneck}
    outcome.notes += [f"the load was a bottleneck: {reason}" for reason in sorted(reasons)]
    if disturbed:
        outcome.notes.append(
            f"others used more than {DISTURBED} cores in {disturbed} of {len(runs)} steady runs: "
            "repeat on a quiet machine before relying on a verdict"
        )


def measure_limits(stage: Scene, options: Options, outcome: Outcome, say: Callable[[str], None]) -> None:
    with hold(stage.broker_pid, options.share) as possible:
        if not possible:
            outcome.notes.append("CPU control groups are not writable here: the limit was not searched")
            return
        for number in range(options.searches):
            for way in stage.ways:
                found = search_limit(stage, way, options, say)
                outcome.limits.setdefault(way.name, []).append(found)
                say(f"search {number + 1}: {way.name}: {found:.0f} publications/s hold")


def search_limit(stage: Scene, way: Way, options: Options, say: Callable[[str], None]) -> float:
    def holds(rate: float) -> bool:
        failures = 0
        for _ in range(TRIES):
            load = Load(rate, options.probe_seconds, options.tick, options.eager)
            got = sample(stage, way, load, latency=False)
            say(f"  {way.name} at {rate:.0f}/s: egress {got.held:.3f}, others {got.others:.2f}")
            if got.held >= HOLDS:
                return True
            failures += got.others < DISTURBED
            if failures and (failures > 1 or got.held < WORTH_A_SECOND_TRY):
                break
        return False

    return highest(holds, options.start)


def parse() -> tuple[Options, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay", description=__doc__)
    parser.add_argument("--short", action="store_true", help="two rounds and one search, a minute or two")
    parser.add_argument("--rate", type=float, help="publications a second of the steady load")
    parser.add_argument("--rounds", type=int, help="rounds of the steady load")
    parser.add_argument("--seconds", type=float, help="length of one steady run")
    parser.add_argument("--searches", type=int, help="searches for the limit, for each way; 0 skips them")
    parser.add_argument("--share", type=float, help="the broker's share of a core in the searches")
    parser.add_argument("--tick", type=float, help="seconds between two rounds of sending")
    parser.add_argument(
        "--poll", action="store_true", help="clients read once a tick, not what arrives at once"
    )
    parser.add_argument("--ways", help="only these ways, by name, separated by ;")
    parser.add_argument("--recording", action="store_true", help="also a node that records all it relays")
    parser.add_argument("--first", action="store_true", help="go before everything else on a busy machine")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--verbose", action="store_true", help="say each run's result as it comes")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    flags = parser.parse_args()
    options = Options(rounds=2, seconds=4, searches=1, probe_seconds=3) if flags.short else Options()
    for name in ("rate", "rounds", "seconds", "searches", "share", "tick"):
        if (value := getattr(flags, name)) is not None:
            setattr(options, name, value)
    options.eager = not flags.poll
    return options, flags


def main() -> int:
    options, flags = parse()
    console = Console(width=None if sys.stdout.isatty() else 170)
    facts, outcome = machine.facts(), Outcome()

    def say(line: str) -> None:
        if flags.verbose:
            console.print(line, highlight=False)

    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.one_benchmark())
        if flags.first and not stack.enter_context(preferred()):
            outcome.notes.append("CPU control groups are not writable here: --first had no effect")
        stage = stack.enter_context(scene(flags.recording))
        if stage.missing:
            outcome.notes.append(f"no node: {stage.missing}")
        if flags.ways:
            stage = stage.only(flags.ways.split(";"))
        measure_steady(stage, options, outcome, say)
        measure_limits(stage, options, outcome, say)
    note_disturbance(outcome)
    targets = report.targets(outcome.steady, outcome.limits)
    report.show(console, facts, options.rate, outcome.steady, outcome.limits, targets, outcome.notes)
    if flags.json:
        document = {
            "facts": facts,
            "command": " ".join(["python -m benchmarks.relay", *sys.argv[1:]]),
            "options": asdict(options),
            "targets": [asdict(target) | {"met": target.met} for target in targets],
            **asdict(outcome),
        }
        flags.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if flags.strict and not all(target.met for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())

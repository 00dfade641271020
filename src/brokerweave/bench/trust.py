"""Whether a figure may be relied on: two runs agree and only the broker was the limit; and if not, why not.

Owns the rule (10 %) and the words of each reason. Pure. Must not know: files, how a report looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from brokerweave.bench.figures import RunResult
from brokerweave.bench.folder import RunInfo
from brokerweave.bench.limit import in_doubt, outcome_of

AGREE = 0.10
"""Two runs of the same thing may differ by this part of the smaller one."""
NOISE = 0.10
"""Cores that others may use before they count as a reason."""
SLOWER = 0.05
"""By which part more CPU for the same work says that the machine was slower."""
COUNTED = 0.001
"""By which part what was counted may differ from what the logs have."""
ERROR = 0.05
"""How far above a limit the nearest missed rate may be (ILDM 5.3)."""
LATE = 0.001
"""The part of sends that may be late before it counts as a reason."""

TRUSTED, DOUBTED, ONCE = "trustworthy", "not trustworthy", "not repeated"


@dataclass(frozen=True, slots=True)
class TrustVerdict:
    """Of one name (and number of publishers), over all its repetitions."""

    name: str
    publishers: int
    state: str
    difference: float | None
    """Of the throughput that differs most, as part of its smallest; None if there is but one run."""
    reasons: tuple[str, ...]


def judge(found: Iterable[RunResult], also: Sequence[str] = ()) -> list[TrustVerdict]:
    """One verdict for each thing measured. `also` are reasons known beforehand, such as different commits."""
    groups: dict[tuple[str, int], list[RunResult]] = {}
    for each in found:
        groups.setdefault((each.name, each.publishers), []).append(each)
    return [_judged(name, publishers, same, also) for (name, publishers), same in groups.items()]


def causes(result: RunResult) -> list[str]:
    """All that may have falsified one measurement, in words (ILDM 5.3, and the noise of a shared machine)."""
    bottleneck, indexes = result.measurement.bottleneck, result.indexes
    found = []
    if bottleneck.tool:
        found.append(f"the load tool was the bottleneck: {bottleneck.reason or 'no reason given'}")
    found += _not_bounded(result)
    if _disagree(result):
        counted = result.measurement.counters
        found.append(
            f"the logs have {indexes.sent:,} messages sent and {indexes.received:,} received, where "
            f"{counted.sent:,} and {counted.received:,} were counted: logs are missing"
        )
    if indexes.strays or indexes.surplus:
        found.append(
            f"{indexes.strays:,} deliveries of messages that nobody sent, {indexes.surplus:,} more than "
            "were expected: somebody else uses the topics, or logs are missing"
        )
    late = indexes.late_sends / indexes.sent if indexes.sent else 0.0
    if late > LATE and "sent late" not in bottleneck.reason:
        found.append(f"{late:.1%} of messages were sent late")
    if indexes.noise is not None and indexes.noise > NOISE:
        found.append(f"processes of others kept {indexes.noise:.2f} cores busy")
    if bottleneck.retransmissions:
        found.append(f"{bottleneck.retransmissions} TCP retransmissions")
    if bottleneck.zero_windows:
        found.append(f"a TCP window was closed {bottleneck.zero_windows} times: a receiver did not keep up")
    if bottleneck.drops:
        found.append(f"the machine dropped {bottleneck.drops} packets by itself")
    return found


def _disagree(result: RunResult) -> bool:
    """Do the logs have other figures than were counted meanwhile?"""
    counted, found = result.measurement.counters, result.indexes
    pairs = ((counted.sent, found.sent), (counted.received, found.received))
    return any(abs(ours - theirs) > COUNTED * max(ours, 1 / COUNTED) for ours, theirs in pairs)


def _spoilt(result: RunResult) -> bool:
    """Is it another figure than it is said to be, however often it was found?"""
    uninvited = bool(result.indexes.strays or result.indexes.surplus)
    return result.measurement.bottleneck.tool or uninvited or _disagree(result) or bool(_not_bounded(result))


def _not_bounded(result: RunResult) -> list[str]:
    """Why what a search ended with may be no limit of the broker: it is one only if the broker missed a rate
    just above it."""
    miss = result.miss
    if not result.searched or not result.found:
        return []
    if miss is None:
        return ["no higher rate was missed: the search did not end"]
    found = []
    above = miss.rate / result.measurement.rate - 1
    if above > ERROR + 1e-6:  # the paper's search ends with exactly so much
        found.append(f"the nearest rate that was missed is {above:.0%} above: the limit is between them")
    if in_doubt(miss, outcome_of(miss, result.indexes.sp_ratio)):
        found.append(f"what was missed above it the load tool may have missed: {miss.bottleneck.reason}")
    return found


def differences(one: RunInfo, other: RunInfo) -> list[str]:
    """What two runs did not have in common: then they may differ for a good reason, but repeat nothing."""
    found = []
    if one.commit != other.commit:
        found.append(f"the commits differ ({one.commit}, {other.commit}): this may be a real change")
    pairs: Sequence[tuple[str, Mapping[str, object], Mapping[str, object]]] = (
        ("scenario", one.scenario, other.scenario),
        ("machine", one.machine, other.machine),
        ("version", one.versions, other.versions),
    )
    for word, mine, theirs in pairs:
        names = [name for name in sorted(mine.keys() | theirs.keys()) if mine.get(name) != theirs.get(name)]
        if names:
            found.append(
                f"the {word}s differ ({', '.join(names)})"
                if word != "machine"
                else f"the machine differs ({', '.join(names)})"
            )
    return found


def apart(values: Sequence[float]) -> float:
    """How far the largest is above the smallest, as part of the smallest."""
    low, high = min(values), max(values)
    return high / low - 1 if low > 0 else (0.0 if high == low else float("inf"))


def _judged(name: str, publishers: int, same: list[RunResult], also: Sequence[str]) -> TrustVerdict:
    seen = list(dict.fromkeys(cause for each in same for cause in causes(each)))
    if any(not each.found for each in same):
        return TrustVerdict(name, publishers, DOUBTED, None, ("no rate was under the limit", *seen))
    spoilt = any(map(_spoilt, same))
    if len(same) == 1:
        return TrustVerdict(name, publishers, DOUBTED if spoilt else ONCE, None, tuple(seen))
    difference = max(
        apart([each.indexes.ingress_per_s for each in same]),
        apart([each.indexes.egress_per_s for each in same]),
    )
    if difference <= AGREE:
        return TrustVerdict(name, publishers, DOUBTED if spoilt else TRUSTED, difference, tuple(seen))
    first = f"{len(same)} runs differ by {difference:.0%}, more than {AGREE:.0%}"
    why = [*also, *_slower(same), *seen] or [_NOTHING_SEEN + _unwatched(same)]
    return TrustVerdict(name, publishers, DOUBTED, difference, (first, *why))


def _slower(same: list[RunResult]) -> list[str]:
    """A machine that others use, too, runs the same work slower at times, and nobody's share shows it."""
    costs = [cost for each in same if (cost := each.indexes.cost)]
    if len(costs) < 2 or apart(costs) <= SLOWER:
        return []
    spent = f"{min(costs) * 1e6:.2f} to {max(costs) * 1e6:.2f} µs of CPU"
    why = "the machine was not as fast all the time, or they did other work"
    return [f"a delivery cost the servers {spent}: {why}"]


_NOTHING_SEEN = "none of the causes that are watched was seen (load tool, others' CPU, TCP): measure again"


def _unwatched(same: list[RunResult]) -> str:
    return "; others' CPU was not watched" if any(each.indexes.noise is None for each in same) else ""

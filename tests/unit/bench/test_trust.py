"""What makes a figure trustworthy, and which words say why it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.bench.figures import Distribution, Indexes, RunResult, Usage
from brokerweave.bench.folder import MACHINE, Bottleneck, Measurement, RunInfo, Times, WindowCounts
from brokerweave.bench.trust import DOUBTED, ONCE, TRUSTED, apart, causes, differences, judge

INDEXES = Indexes(
    id=1, name="C sf", repeat=0, rate=100.0, sent=400, acknowledged=0, received=800, expected=800, lost=0,
    surplus=0, strays=0, doubled=0, disordered=0, late_sends=0, publishers=10, sp_ratio=2.0,
    ingress_per_s=100.0, egress_per_s=200.0, ingress_least=100.0, egress_least=200.0,
    kept_up=1.0, latency=Distribution(), jitter=Distribution(), usage=(), noise=0.01,
)  # fmt: skip
COUNTED = WindowCounts(sent=400, received=800)
MEASUREMENT = Measurement(1, "C sf", 100.0, 0.1, Times(1, 4, 1), (0, 4 * 10**9), counters=COUNTED)
MISSED = replace(MEASUREMENT, rate=103.0, counters=replace(COUNTED, ingress_per_s=103.0, egress_per_s=150.0))
RUN = RunInfo("patterns", {"qos": 0}, {"cores": 2}, {"mosquitto": "2"}, "abc", "2026-01-01")


def result(
    egress: float = 200.0, *, noise: float | None = 0.01, late: int = 0, **bottleneck: int | str
) -> RunResult:
    indexes = replace(INDEXES, egress_per_s=egress, ingress_per_s=egress / 2, noise=noise, late_sends=late)
    measurement = replace(MEASUREMENT, bottleneck=Bottleneck(**bottleneck))  # type: ignore[arg-type]
    return RunResult("C sf", 10, 0, measurement, indexes, 5, searched=True, miss=MISSED)


def test_two_runs_within_a_tenth_are_trusted_even_on_a_noisy_machine() -> None:
    (verdict,) = judge([result(200), result(219, noise=0.5)])
    assert verdict.state == TRUSTED
    assert verdict.difference == pytest.approx(0.095)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (result(230, noise=0.6), "0.60 cores"),
        (result(230, retransmissions=3), "3 TCP retransmissions"),
        (result(230, tool=1, reason="a worker used 97 % of its core"), "97 %"),
        (result(230, zero_windows=2), "TCP window was closed 2 times"),
        (result(230, drops=4), "dropped 4 packets"),
        (result(230, late=40), "10.0% of messages were sent late"),
        (result(230), "measure again"),
        (result(230, noise=None), "CPU was not watched"),
    ],
)
def test_two_runs_more_than_a_tenth_apart_are_not_trusted_and_the_reason_is_said(
    other: RunResult, words: str
) -> None:
    (verdict,) = judge([result(200), other])
    assert verdict.state == DOUBTED
    assert verdict.reasons[0] == "2 runs differ by 15%, more than 10%"
    assert words in "; ".join(verdict.reasons[1:])


def test_a_machine_that_was_slower_in_one_run_is_known_by_what_a_delivery_cost() -> None:
    def costing(cpu: float, egress: float) -> RunResult:
        found = result(egress)
        usage = (
            Usage("site1/broker", cpu, cpu, 1),
            Usage("load/0", 0.9, 0.9, 1),
            Usage(MACHINE, 1.5, 1.5, 1),
        )
        return replace(found, indexes=replace(found.indexes, usage=usage))

    (verdict,) = judge([costing(0.1, 2000), costing(0.1, 2500)])
    assert verdict.reasons[1].startswith("a delivery cost the servers 40.00 to 50.00 µs of CPU")
    (verdict,) = judge([costing(0.1, 2000), costing(0.125, 2500)])
    assert "measure again" in verdict.reasons[1]


def test_a_figure_that_the_tool_limited_is_not_trusted_however_often_it_is_repeated() -> None:
    limited = result(tool=1, reason="late")
    assert [judge(runs)[0].state for runs in ([limited], [limited, limited])] == [DOUBTED, DOUBTED]


def test_a_limit_is_trusted_only_if_the_broker_missed_a_rate_at_most_5_per_cent_above_it() -> None:
    counted = replace(COUNTED, ingress_per_s=105.0, egress_per_s=200.0)
    miss = replace(MEASUREMENT, rate=105.0, counters=counted)
    far = replace(miss, rate=120.0)
    busy = replace(miss, bottleneck=Bottleneck(tool=True, reason="load process 0 used 97% of a core"))
    verdicts = [judge([replace(result(), miss=each)])[0] for each in (miss, far, busy, None)]
    assert [each.state for each in verdicts] == [ONCE, DOUBTED, DOUBTED, DOUBTED]
    assert "is 20% above" in verdicts[1].reasons[0]
    assert "97% of a core" in verdicts[2].reasons[0]
    assert "the search did not end" in verdicts[3].reasons[0]


@pytest.mark.parametrize(("sent", "received"), [(200, 800), (400, 0)])
def test_logs_that_lack_what_was_counted_are_noticed(sent: int, received: int) -> None:
    lacking = result()
    lacking = replace(lacking, indexes=replace(lacking.indexes, sent=sent, received=received))
    (verdict,) = judge([lacking])
    assert verdict.state == DOUBTED
    assert "where 400 and 800 were counted: logs are missing" in verdict.reasons[0]


@pytest.mark.parametrize("more", [{"strays": 3}, {"surplus": 3}])
def test_deliveries_that_were_never_expected_are_said(more: dict[str, int]) -> None:
    spoilt = replace(result(), indexes=replace(INDEXES, **more))  # type: ignore[arg-type]
    (said,) = causes(spoilt)
    assert judge([spoilt, spoilt])[0].state == DOUBTED
    assert "somebody else uses the topics" in said
    assert "3" in said


def test_one_run_alone_is_not_called_trustworthy() -> None:
    (verdict,) = judge([result(noise=0.5)])
    assert (verdict.state, verdict.difference) == (ONCE, None)
    assert "0.50 cores" in verdict.reasons[0]


def test_a_search_that_found_no_rate_under_the_limit_is_not_trusted() -> None:
    over = result()
    over = replace(over, indexes=replace(over.indexes, egress_per_s=100.0))
    (verdict,) = judge([over])
    assert verdict.state == DOUBTED
    assert "no rate was under the limit" in verdict.reasons


def test_things_of_different_names_or_numbers_of_publishers_are_judged_apart() -> None:
    other = replace(result(900), publishers=20)
    assert [each.state for each in judge([result(), other])] == [ONCE, ONCE]


def test_what_two_runs_did_not_have_in_common_is_said_first() -> None:
    changed = replace(RUN, commit="def", scenario={"qos": 1}, machine={"cores": 4})
    assert differences(RUN, RUN) == []
    said = differences(RUN, changed)
    assert "commits differ (abc, def)" in said[0]
    assert said[1:] == ["the scenarios differ (qos)", "the machine differs (cores)"]
    (verdict,) = judge([result(200), result(300)], said)
    assert verdict.reasons[1] == said[0]


def test_nothing_differs_from_nothing_and_everything_does_from_nothing() -> None:
    assert apart([0.0, 0.0]) == 0.0
    assert apart([0.0, 1.0]) == float("inf")


def test_late_sends_are_said_once() -> None:
    said = causes(result(late=40, tool=1, reason="10.0% of the messages were sent late"))
    assert [each for each in said if "late" in each] == [
        "the load tool was the bottleneck: 10.0% of the messages were sent late"
    ]

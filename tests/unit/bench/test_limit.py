"""Which misses are believed, and which are measured again."""

from __future__ import annotations

import os

import pytest

from brokerweave.bench.folder import Bottleneck, EdgeServer, Measurement, Times, WindowCounts
from brokerweave.bench.limit import chosen_search, in_doubt, outcome_of, rest
from brokerweave.bench.load.driver import MOVED, LoadTarget, late_reason
from brokerweave.bench.scenario import PRESETS
from brokerweave.errors import ConfigError


def missed(egress: float, late: int, reason: str | None = None) -> bool:
    counters = WindowCounts(sent=1000, late_sends=late, ingress_per_s=1000, egress_per_s=egress)
    trouble = Bottleneck(tool=late > 10 or bool(reason), reason=reason or late_reason(counters))
    measurement = Measurement(
        1, "x", 1000, 0.05, Times(1, 1, 1), (0, 1), counters=counters, bottleneck=trouble
    )
    return in_doubt(measurement, outcome_of(measurement, 1.0))


def test_a_miss_is_believed_if_the_tool_kept_up_or_was_late_much_less_than_the_broker() -> None:
    assert not missed(egress=900, late=0)
    assert not missed(egress=500, late=100)


def test_a_miss_that_lateness_may_explain_is_in_doubt() -> None:
    assert missed(egress=950, late=100)
    assert missed(egress=100, late=900)


def test_a_busy_tool_makes_every_miss_doubtful_and_no_success() -> None:
    assert missed(egress=500, late=0, reason="load process 0 used 97% of a core")
    assert not missed(egress=1000, late=500)


def test_where_quotas_were_lost_even_a_success_is_in_doubt_whatever_else_happened() -> None:
    assert missed(egress=1000, late=0, reason=MOVED)
    assert missed(egress=1000, late=0, reason=f"load process 0 used 97% of a core; {MOVED}")


def test_servers_that_never_come_to_rest_are_said_and_not_waited_for_without_end() -> None:
    said: list[str] = []
    rest(LoadTarget({}), said.append, limit=0.0)
    assert said == []
    rest(LoadTarget({}, (EdgeServer("a", None, {"broker": os.getpid()}),)), said.append, limit=0.0)
    assert "still busy after 0 s" in said[0]


def test_the_papers_times_call_for_the_papers_search() -> None:
    assert chosen_search(None, PRESETS["paper"])[0] == "exact"
    assert chosen_search(None, PRESETS["short"])[0] == "adaptive"
    assert next(chosen_search("exact", PRESETS["short"], 0.004)[1]) == 0.004
    with pytest.raises(ConfigError, match="known: adaptive, exact"):
        chosen_search("binary", PRESETS["short"])

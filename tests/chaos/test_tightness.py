"""The checker of mesh runs notices most of what could go wrong besides, under all faults.

`python -m tests.chaos.tightness` measures it over more runs.
"""

from __future__ import annotations

from brokerweave.sim.schedule import FAULTS
from tests.chaos.tightness import CHANGES, measure

SEEN = {"lost": 0.75, "doubled": 0.7, "out of order": 0.6}
"""The part to which it has to object. What is beyond these is within a limit of docs/guarantees.md."""


def test_most_of_what_is_lost_doubled_or_out_of_order_is_noticed() -> None:
    tried, found, passed = measure(range(1, 16), 4, FAULTS)
    for kind in CHANGES:
        print(f"{kind}: {found[kind]} of {tried[kind]}")
        assert found[kind] >= SEEN[kind] * tried[kind], passed


def test_without_faults_all_of_it_is() -> None:
    tried, found, passed = measure(range(1, 4), 4, ())
    assert found == tried, passed

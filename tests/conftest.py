"""For all tests: machines are shared and noisy, so no example of a property may fail for having been slow.

`pytest -n 2 --dist loadgroup` spreads files over two processes; what shares the Spark session stays together.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("brokerweave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("brokerweave")

LONGEST = ("tests/pipeline/test_exactly_once.py", "tests/pipeline/test_away.py")
"""Begun first, so that no process is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def group(item: pytest.Item) -> str:
        uses_spark = "spark" in getattr(item, "fixturenames", ())
        return "spark" if uses_spark else item.nodeid.partition("::")[0]

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    first = {name: rank for rank, name in enumerate((LONGEST[0], "spark", *LONGEST[1:]))}
    items.sort(key=lambda item: first.get(group(item), len(first)))

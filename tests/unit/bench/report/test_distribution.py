"""Distributions beside a normal one."""

from __future__ import annotations

from random import Random
from statistics import NormalDist

import pytest

from brokerweave.bench.report.distribution import Counted


def normal(count: int = 20_000) -> Counted:
    """Values of a normal distribution, at equal steps of probability."""
    source = NormalDist(10, 2)
    return Counted([source.inv_cdf((n + 0.5) / count) for n in range(count)], [1] * count)


def test_counts_weigh_values_as_if_each_stood_alone() -> None:
    random = Random(1)
    values = sorted(random.choices(range(20), k=500))
    alone = Counted(values, [1] * len(values))
    kinds = sorted(set(values))
    counted = Counted(kinds, [values.count(each) for each in kinds])
    assert counted.count == 500
    assert counted.mean == pytest.approx(alone.mean)
    assert counted.deviation == pytest.approx(alone.deviation)
    assert [counted.quantile(n / 10) for n in range(11)] == [alone.quantile(n / 10) for n in range(11)]
    assert counted.quantile(1.0) == values[-1]


def test_columns_and_the_normal_curve_are_densities() -> None:
    counted = normal()
    area = sum((high - low) * height for low, high, height in counted.columns())
    assert area == pytest.approx(0.999, abs=0.002)
    assert max(y for _, y in counted.normal_curve()) == pytest.approx(NormalDist(10, 2).pdf(10), rel=0.01)


def test_a_normal_distribution_lies_on_both_lines() -> None:
    counted = normal()
    assert all(value == pytest.approx(10 + 2 * z, abs=0.05) for z, value in counted.quantiles())
    assert all(x == pytest.approx(y, abs=0.01) for x, y in counted.probabilities())


def test_a_skewed_distribution_lies_off_them() -> None:
    random = Random(2)
    skewed = Counted(sorted(random.lognormvariate(0, 1) for _ in range(2000)), [1] * 2000)
    assert max(abs(x - y) for x, y in skewed.probabilities()) > 0.1
    z, value = skewed.quantiles()[-1]
    assert value > skewed.mean + 1.5 * z * skewed.deviation


def test_a_single_value_has_columns_but_no_normal_curve() -> None:
    counted = Counted([3.0], [7])
    assert counted.deviation == 0
    assert (counted.normal_curve(), counted.normal_cumulative(), counted.probabilities()) == ([], [], [])
    assert len(counted.columns()) > 0
    assert {value for value, _ in counted.cumulative()} == {3.0}

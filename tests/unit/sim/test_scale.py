from __future__ import annotations

import pytest

from brokerweave.errors import ConfigError
from brokerweave.sim.scale import ScaleOptions, ScaleResult, ScaleRun
from brokerweave.sim.scale_shapes import SHAPES

SMALL = {"nodes": 12, "duration": 60.0, "filters": 10, "publications": 2.0}


def run(**options: object) -> ScaleResult:
    return ScaleRun(ScaleOptions(**{**SMALL, **options})).run()  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", ["pf", "sf"])
def test_what_is_published_at_rest_reaches_every_site_that_wants_it_once(shape: str, strategy: str) -> None:
    result = run(shape=shape, strategy=strategy)
    assert result.checked > 5
    assert (result.missed, result.doubled) == (0, 0)


@pytest.mark.parametrize("wide", [0.0, 0.2])
def test_the_same_options_give_the_same_run(wide: float) -> None:
    assert run(wide=wide, seed=3) == run(wide=wide, seed=3)
    assert run(wide=wide, seed=3) != run(wide=wide, seed=4)


def test_pf_sends_each_publication_over_every_link_and_says_nothing_of_filters() -> None:
    result = run(strategy="pf")
    assert result.crossings == result.published * 11
    assert result.subscribing.filters_sent == result.churn.filters_sent == result.table_max == 0


def test_sf_sends_a_publication_over_fewer_links_but_enough_of_them() -> None:
    result = run(nodes=40)
    assert result.wanted <= result.crossings < result.published * 39


def test_a_filter_that_nobody_else_wants_goes_over_every_link_once() -> None:
    result = run()
    assert result.probe.filters_sent == result.probe.interest_packets == 11
    assert result.probe.changes == 1
    assert result.probe_known == 12


def test_a_new_filter_is_known_after_the_way_to_the_farthest_node_and_suback_comes_after_the_way_back() -> (
    None
):
    result = run(shape="row", delay=0.02)
    assert result.probe.settled_after == pytest.approx(11 * 0.02)
    assert result.suback_after == pytest.approx(2 * 11 * 0.02)


def test_suback_waits_for_nobody_without_a_barrier() -> None:
    result = run(barrier=False)
    assert result.suback_after == 0.0
    assert result.churn.barrier_packets == 0 < result.churn.filters_sent


def test_after_the_cut_both_sides_tell_each_other_again_what_they_want() -> None:
    result = run()
    assert result.returned.filters_sent > 0
    assert result.returned.settled_after is not None


def test_a_run_too_short_for_its_tree_says_that_it_did_not_settle() -> None:
    result = run(shape="row", delay=1.0)
    assert result.probe.settled_after is None
    assert 0 < result.probe_known < 12


def test_more_clients_that_change_make_more_filters_cross_links() -> None:
    assert run(churn=20.0).churn.filters_sent > 2 * run(churn=2.0).churn.filters_sent


class TestMesh:
    def test_what_is_published_at_rest_reaches_every_site_that_wants_it_once_and_in_one_hop(self) -> None:
        result = run(strategy="mesh")
        assert result.checked > 5
        assert (result.missed, result.doubled) == (0, 0)
        assert result.hops == 1

    def test_each_end_of_a_link_tells_all_its_filters_at_once_when_it_comes_up(self) -> None:
        few, many = (run(strategy="mesh", churn=0.0, holds=holds).subscribing for holds in (2, 10))
        assert few == many
        # Who keeps copies of a site's records is told besides, when these have them.
        assert 12 * 11 <= few.filters_sent == few.interest_packets < 2 * 12 * 11

    def test_a_new_filter_is_told_to_all_at_once_and_suback_waits_for_their_answers(self) -> None:
        result = run(strategy="mesh", delay=0.02)
        assert result.probe.filters_sent == 11
        assert result.probe.settled_after == pytest.approx(0.02)
        assert result.suback_after == pytest.approx(0.04)
        assert result.probe_known == 12

    def test_clients_of_a_site_that_is_cut_off_are_elsewhere_and_stay_there(self) -> None:
        scale = ScaleRun(ScaleOptions(**{**SMALL, "strategy": "mesh"}))  # type: ignore[arg-type]
        result = scale.run()
        moved = scale.clients[0]
        assert {node.name for node in scale.nodes if moved.name in node.core.sessions.records} == {"n1"}
        assert result.returned.settled_after is not None

    def test_the_same_options_give_the_same_run(self) -> None:
        assert run(strategy="mesh", seed=3) == run(strategy="mesh", seed=3)


@pytest.mark.parametrize("wrong", [{"shape": "circle"}, {"strategy": "none"}, {"nodes": 1}, {"clients": 0}])
def test_options_that_make_no_run_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        run(**wrong)

"""The five experiments: which runs there are, what their ratios are, what the report and the command say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from brokerweave.bench.folder import RunInfo
from brokerweave.bench.overlay import experiments, many, ratios, reporting, running
from brokerweave.bench.overlay.experiments import BYTES, LATENCY, RECOVERY, Contender, Target
from brokerweave.bench.overlay.ratios import Outcome
from brokerweave.bench.overlay.running import Measured
from brokerweave.bench.report.document import html
from brokerweave.errors import ConfigError
from brokerweave.sim.overlay_run import OverlayOptions, OverlayResult

STAR = experiments.STAR
OTHER = Contender("everybody", "tests.unit.sim.test_overlay_run:ToEverybody")
RUN = RunInfo("overlay", {}, {}, {}, "0", "2026")


def outcome(*numbers: str, made: dict[str, list[OverlayResult]], seeds: int = 1) -> Outcome:
    """Each contender has these results, the next one at each level and seed."""
    chosen = experiments.experiments(numbers, 10, 1e9, quick=True)
    contenders = [Contender(name, name) for name in made]
    found = {}
    for each in contenders:
        left = iter(made[each.name])
        for experiment in chosen:
            for level in experiment.levels:
                for seed in range(seeds):
                    found[experiments.of(level, each, seed)] = Measured(next(left), 0.0, 0)
    return Outcome(chosen, contenders, range(seeds), found)


def test_the_five_experiments_vary_what_the_thesis_varied() -> None:
    made = {each.number: each for each in experiments.experiments(experiments.CHOICES, 50, 1e9)}
    varied = {
        "4.2.1": [(50, sites, 14, 7) for sites in (12, 25, 38, 50)],
        "4.2.2": [(50, 50, publishers, 7) for publishers in (1, 5, 10, 14)],
        "4.2.3": [(50, 50, 14, topics) for topics in (1, 3, 5, 7)],
        "4.2.4": [(nodes, 10, 14, 7) for nodes in (10, 20, 30, 40, 50)],
        "4.2.5": [(50, 50, 14, 7)],
    }
    for number, wanted in varied.items():
        levels = [level.options for level in made[number].levels]
        assert [(o.nodes, o.subscribers, o.publishers, o.topics) for o in levels] == wanted
        assert all(o.payload == 4096 and o.kill == (number == "4.2.5") for o in levels)
    (killed,) = made["4.2.5"].levels
    assert killed.options.settle + killed.options.warm_up == 30.0


def test_a_level_that_two_experiments_share_is_run_once_and_the_longest_runs_come_first() -> None:
    chosen = experiments.experiments(("4.2.1", "4.2.2", "4.2.3"), 50, 1e9)
    jobs = experiments.jobs(chosen, [STAR], [1, 2])
    assert len(jobs) == 2 * (4 + 4 + 4 - 2)
    assert (jobs[0].subscribers, jobs[0].publishers, jobs[0].topics) == (50, 14, 7)


def test_an_experiment_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no experiment '4\.2\.6'"):
        experiments.experiments(["4.2.6"], 50, 1e9)


def test_worst_is_the_worst_node_averaged_over_levels_and_ratios_are_to_the_baseline() -> None:
    ours = [OverlayResult(bytes=[1, 3], latencies=[1.0, 2.0]), OverlayResult(bytes=[5, 5], latencies=[4.0])]
    base = [OverlayResult(bytes=[8, 8], latencies=[2.0]), OverlayResult(bytes=[2, 8], latencies=[2.0, 6.0])]
    found = outcome("4.2.1", made={"ours": ours, "scribe": base})
    targets = [Target("4.2.1", "ours", BYTES, 0.5), Target("4.2.1", "ours", LATENCY, 0.7)]
    rows = {(row.contender, row.quantity): row for row in found.rows(["scribe"], targets)}
    assert rows["ours", BYTES].worst == (3 + 5) / 2
    assert rows["ours", BYTES].spread == (1 + 0) / 2
    assert rows["ours", BYTES].to["scribe"] == (4 / 8, 0.5 / 1.5)
    assert rows["ours", BYTES].met is True
    assert rows["ours", LATENCY].to["scribe"] == (3 / 4, 0.25)
    assert rows["ours", LATENCY].met is False
    assert ratios.problems(found, list(rows.values())) == ["4.2.1, ours, latency: ratio 0.75 above 0.7"]


def test_recovery_that_never_came_counts_as_the_time_it_was_watched() -> None:
    ours = [OverlayResult(recovered_after=0.5), OverlayResult(recovered_after=None)]
    found = outcome("4.2.5", made={"ours": ours}, seeds=2)
    (row,) = found.rows([], [])
    assert (row.quantity, row.worst) == (RECOVERY, (0.5 + 6.0) / 2)


def test_what_was_lost_and_exceptions_are_problems() -> None:
    bad = OverlayResult(bytes=[1], latencies=[1.0], missed=2, failures=3, failure="strategy x failed")
    found = outcome("4.2.1", made={"ours": [bad, bad]})
    assert ratios.problems(found, []) == ["4 deliveries missed, 0 doubled", "strategy x failed"]


@pytest.fixture(scope="module")
def small() -> Outcome:
    chosen = experiments.experiments(experiments.CHOICES, 10, 1e9, quick=True)
    contenders = [OTHER, STAR]
    jobs = experiments.jobs(chosen, contenders, [1])
    return Outcome(chosen, contenders, [1], running.measure(jobs, lambda text: None))


def test_every_experiment_runs_and_nothing_is_lost(small: Outcome) -> None:
    assert small.lost == (0, 0)
    assert small.failures == []
    rows = small.rows(["star"], [])
    assert len(rows) == (4 * 2 + 1) * 2
    recovery = {row.contender: row.worst for row in rows if row.quantity == RECOVERY}
    assert recovery["everybody"] == 0.0 < recovery["star"]


def test_the_report_has_a_box_plot_of_each_figure_and_the_ratio_table(small: Outcome) -> None:
    document = reporting.document(RUN, small)
    page = html(document)
    assert page.count("<svg") == 4 * 2 + 1
    for number in (*range(1, 10),):
        assert f"Fig. 4.{number}" in page
    assert [row[2] for row in reporting.ratio_table(small).rows[:2]] == ["everybody", "star"]
    json.dumps(reporting.to_json(small, (), 1.0))


def test_scale_rows_say_what_is_not_held() -> None:
    (case, *_) = many.cases(1e9, quick=True)
    good = OverlayResult(bytes=[10], latency_sum=1.0, deliveries=1)
    costly = OverlayResult(bytes=[9], latency_sum=0.5, deliveries=1, missed=1)
    row = many.ScaleRow("c", "x", case.options, Measured(costly, 601.0, 0), (0.9, 0.5))
    assert many.problems([many.ScaleRow("c", "y", case.options, Measured(good, 1.0, 0), None)]) == []
    assert many.problems([row]) == [
        "c, x: 1 missed, 0 doubled",
        "c, x: ratios 0.90 and 0.50 above 0.65",
        "c, x: 601 s of CPU, 0 MB",
    ]
    assert len(row.cells()) == len(many.ScaleRow.HEAD)


def test_the_command_prints_the_table_and_keeps_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from brokerweave.cli.main import app

    # A temporary folder of its own: no benchmark on this machine makes it wait.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(experiments, "CONTENDERS", (OTHER, STAR))
    command = ["bench", "overlay", "--quick", "--nodes", "10", "--experiment", "4.2.3", "--to", str(tmp_path)]
    done = CliRunner().invoke(app, [*command, "--json"], standalone_mode=False)
    assert done.return_value == 0, done.output
    found = json.loads((tmp_path / "overlay.json").read_text())
    assert {each["strategy"] for each in found["ratios"]} == {"everybody", "star"}
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_the_chosen_fan_out_is_compared_with_the_best_fixed_one_within_the_share() -> None:
    options = replace(OverlayOptions(), uplink=800.0, warm_up=1.0, seconds=1.0)  # 100 bytes a second

    def run(most: int, latency: float) -> list[tuple[OverlayOptions, OverlayResult]]:
        return [(options, OverlayResult(bytes=[1, most], latency_sum=latency, deliveries=1))]

    found = {"direct": run(101, 1.0), "guided F=5": run(100, 2.0), "guided F=2": run(50, 3.0)}
    row = ratios.auto_row("x", {**found, "guided auto": run(100, 2.1)})
    assert (row.best, row.problem) == ("guided F=5", "")
    slow = ratios.auto_row("x", {**found, "guided auto": run(100, 2.4)})
    assert slow.problem == "x: auto has 1.20 of the latency of guided F=5, above 1.1"
    busy = replace(options, uplink=8.0)
    nobody = {name: [(busy, result)] for name, [(_, result)] in found.items()}
    assert ratios.auto_row("x", {**nobody, "guided auto": run(50, 3.0)}).best == "guided F=2"


def test_the_fan_out_is_chosen_for_the_uplink_of_the_nodes() -> None:
    (level, *_) = experiments.experiments(["4.2.1"], 10, 8e6)[0].levels
    chosen = dict(experiments.of(level, experiments.AUTO, 1).strategy_options)
    assert (chosen["bandwidth"], chosen["share"]) == (1e6, experiments.SHARE)
    assert "bandwidth" not in dict(experiments.of(level, experiments.FIXED[0], 1).strategy_options)

"""`brokerweave bench`: load, limits, patterns of cooperating brokers.

Owns the flags and how results are shown. Nothing of the benchmark is imported before a command needs it. Must
not know: how anything is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerweave.cli import bench_migration_command, bench_overlay_command, bench_report_command
from brokerweave.cli.output import console, help_text, progress, table
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.cli.strategy_option import HELP as STRATEGY_HELP
from brokerweave.cli.strategy_option import METAVAR, StrategyOptions, given

if TYPE_CHECKING:
    from brokerweave.bench.folder import Measurement, WindowCounts
    from brokerweave.bench.scenario import Scenario

_HELP = """Measure one broker, or many that cooperate.

Every measurement is kept in a folder, with each message that was sent and received. It needs:
pip install 'brokerweave\\[bench]'.

\b
Examples:
  brokerweave bench limit --broker 127.0.0.1:1883
  brokerweave bench load scenario.toml
"""
_LOAD_HELP = """Load brokers as a scenario says, once, and show what came of it.

Clients publish on schedule whether or not earlier messages arrived. If the tool itself could not keep up, it
says so. The scenario names places (brokers that run, or that are to be started here, with a share of a core)
and the clients at them:

\b
  interval = 0.025            # seconds between two messages of one publisher
  times = "short"             # 1+4+1 s; or "paper", 10+60+10 s; or such as "0.5+2+0.5"
  \\[\\[place]]
  name = "a"
  address = "127.0.0.1:1883"  # or: broker = "mosquitto", quota = 0.1, front = "node"
  \\[\\[clients]]
  place = "a"
  topic = "topic1"
  publishers = 10
  subscribers = 10            # latency = true: these measure latency, apart from the load

\b
Examples:
  brokerweave bench load scenario.toml
  brokerweave bench load scenario.toml --rate 2000 --json
"""
_LIMIT_HELP = """Find the highest rate that brokers can serve for ever.

A rate is under the limit if at least 99 % of the expected deliveries go out while messages come in. The
result is within 5 % of the limit. The same --to goes on where an earlier search was interrupted.

\b
Examples:
  brokerweave bench limit --broker 127.0.0.1:1883 --json
  brokerweave bench limit scenario.toml --search exact --to run1
"""
_PATTERNS_HELP = """Find the limits of the paper's patterns, and of what they are compared with, in one run.

One Mosquitto alone (S1), with ten times the share of a core (S2), behind HAProxy, behind a node (A); five in
a row without locality (B), with high (C) and with low locality (D), joined by nodes with PF, SF and mesh, and
by Mosquitto's own bridges; and five apart, with C's clients and nothing between them. Single brokers of other
makers where they are installed. The same --to goes on where an earlier run was interrupted.

\b
Examples:
  brokerweave bench patterns --quota 0.1
  brokerweave bench patterns --only "mosquitto S1" --only "C sf" --preset paper
"""
_PAIRS_HELP = """Many one-to-one pairs at a constant rate, through one broker and through four nodes.

Publishers use QoS 2, subscribers QoS 0. The number of pairs grows, the messages a second of all together do
not.

\b
Examples:
  brokerweave bench pairs
  brokerweave bench pairs --count 50 --count 2000 --strategy sf --strategy none
"""
_FAILOVER_HELP = """Pairs at a constant rate through four nodes, while one and then two of them are killed.

A site's node and broker end in one moment, after a third of the time. Clients keep their sessions, come back
at another site, and send again what was not acknowledged.

\b
Examples:
  brokerweave bench failover
  brokerweave bench failover --kill 2 --pairs 100 --rate 500
"""
_COMPARE_HELP = """Measure strategies beside each other: the same small network and load for each, in turn.

Every site is a real broker (Mosquitto, or amqtt where that is not installed) and a real node. Shown are
throughput, latency, the bytes that nodes send each other beside publications, and the nodes' memory, with
ratios to the first strategy. report.html and report.md are in the run's folder.

\b
Examples:
  brokerweave bench compare --strategy pf --strategy sf
  brokerweave bench compare --strategy sf --strategy my_package.hub:Hub --nodes 5 --rate 500
"""

To = Annotated[Path | None, typer.Option("--to", metavar="DIR", help="The run's folder; default: a new one.")]
Preset = Annotated[
    str | None,
    typer.Option(metavar="short|paper|W+M+C", help="Times: 1+4+1 s, 10+60+10 s, or others."),
]
SearchKind = Annotated[
    str | None,
    typer.Option(
        metavar="adaptive|exact", help="Few measurements, or all of the paper's; default: as the preset."
    ),
]
JoinedBy = Annotated[
    str | None,
    typer.Option("--strategy", "--join", metavar=METAVAR, help=STRATEGY_HELP + " Default: as the scenario."),
]
Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", "--join", metavar=METAVAR, help=STRATEGY_HELP + " May be repeated."),
]
Quota = Annotated[
    float, typer.Option(min=0.01, max=1, help="The share of a core of each broker, and of each node.")
]


def register(app: typer.Typer) -> None:
    bench = typer.Typer(help=help_text(_HELP))
    bench.command("load", help=help_text(_LOAD_HELP))(load)
    bench.command("limit", help=help_text(_LIMIT_HELP))(limit)
    bench.command("patterns", help=help_text(_PATTERNS_HELP))(patterns)
    bench.command("pairs", help=help_text(_PAIRS_HELP))(pairs)
    bench.command("failover", help=help_text(_FAILOVER_HELP))(failover)
    bench.command("compare", help=help_text(_COMPARE_HELP))(compare)
    bench_migration_command.register(bench)
    bench_overlay_command.register(bench)
    bench_report_command.register(bench)
    app.add_typer(bench, name="bench")


def load(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml")],
    rate: Annotated[
        float | None,
        typer.Option(help="Messages a second of all publishers, instead of the file's interval.", min=0.001),
    ] = None,
    strategy: JoinedBy = None,
    settings: StrategyOptions = None,
    preset: Preset = None,
    to: To = None,
    as_json: Json = False,
) -> int:
    _need()
    from brokerweave.bench.load.driver import measure
    from brokerweave.bench.scenario import load_file
    from brokerweave.bench.servers import serving
    from brokerweave.bench.starting import one_benchmark, open_run

    wanted = _adapted(load_file(scenario), preset, strategy, settings)
    if rate is not None:
        wanted = wanted.every(wanted.publishers / rate)
    with one_benchmark(tell):
        folder = open_run("load", wanted.to_dict(), to)
        with serving(wanted, tell) as target:
            done = measure(wanted, target, folder, tell)
    tell("")
    if as_json:
        print_json({"folder": str(folder.path), **_figures(done)})
    else:
        _show([done], folder.path)
    return 0


def limit(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.toml", help="The scenario; without it --broker.")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The broker, or node, to be measured.")
    ] = None,
    topics: Annotated[int, typer.Option(min=1, help="Topics.")] = 5,
    publishers: Annotated[int, typer.Option(min=1, help="Publishers of each topic.")] = 10,
    subscribers: Annotated[int, typer.Option(min=1, help="Subscribers of each topic.")] = 10,
    strategy: JoinedBy = None,
    settings: StrategyOptions = None,
    preset: Preset = None,
    search: SearchKind = None,
    start: Annotated[
        float | None, typer.Option(help="Milliseconds between two messages of a publisher, to begin with.")
    ] = None,
    to: To = None,
    as_json: Json = False,
) -> int:
    _need()
    from brokerweave.bench.limit import chosen_search, find_limit
    from brokerweave.bench.patterns import one_place
    from brokerweave.bench.scenario import load_file
    from brokerweave.bench.servers import serving
    from brokerweave.bench.starting import one_benchmark, open_run
    from brokerweave.errors import ConfigError

    if (scenario is None) == (broker is None):
        raise ConfigError("give either a SCENARIO.toml or --broker HOST:PORT")
    if scenario is not None:
        wanted = load_file(scenario)
    else:
        wanted = one_place("broker", address=broker or "", topics=topics, clients=(publishers, subscribers))
    wanted = _adapted(wanted, preset, strategy, settings)
    kind, asked = chosen_search(search, wanted.times, start / 1000 if start else None)
    with one_benchmark(tell):
        begun = {"start_ms": start} if start else {}
        folder = open_run("limit", {**wanted.to_dict(), "search": kind, **begun}, to)
        with serving(wanted, tell) as target:
            found = find_limit(wanted, target, folder, asked, tell)
    tell("")
    if found.best is None:
        typer.echo("brokerweave: nothing held: no rate was under the limit", err=True)
    best = found.best
    if as_json:
        print_json(
            {
                "folder": str(folder.path),
                "search": kind,
                "measurements": found.measurements,
                "ingress_per_second": best.counters.ingress_per_s if best else 0.0,
                "egress_per_second": best.counters.egress_per_s if best else 0.0,
                **(_figures(best) if best else {}),
            }
        )
    elif best is not None:
        _show([best], folder.path)
    return 0 if best else 1


def patterns(
    quota: Quota = 0.1,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this pattern, such as 'C sf'; may be repeated."),
    ] = None,
    maker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER", help="Single brokers of other makers beside them; default: all installed."
        ),
    ] = None,
    strategy: Strategies = None,
    settings: StrategyOptions = None,
    preset: Preset = "short",
    search: SearchKind = None,
    to: To = None,
    as_json: Json = False,
) -> int:
    _need()
    from dataclasses import replace

    from brokerweave.bench.patterns import patterns as all_patterns
    from brokerweave.bench.scenario import times
    from brokerweave.bench.series import Failed, find_limits
    from brokerweave.bench.starting import one_benchmark, open_run
    from brokerweave.config import nearest
    from brokerweave.errors import ConfigError
    from brokerweave.lab import available

    installed = [name for name, lacks in available().items() if lacks is None and name != "mosquitto"]
    made = all_patterns(quota, times(preset or "short"), tuple(maker or installed), tuple(strategy or ()))
    for name in only or ():
        if name not in made:
            raise ConfigError(f"no pattern is called '{name}'{nearest(name, made)}")
    chosen = [made[name] for name in made if not only or name in only]
    set_up = with_options([each.scenario for each in chosen], settings)
    chosen = [replace(each, scenario=wanted) for each, wanted in zip(chosen, set_up, strict=True)]
    scenarios = {each.scenario.name: each.scenario.to_dict() for each in chosen}
    described = {"quota": quota, "preset": preset, "search": search, "patterns": scenarios}
    with one_benchmark(tell):
        folder = open_run("patterns", described, to)
        results = find_limits(chosen, search, folder, tell)
    found = [each for each in results if not isinstance(each, Failed)]
    failed = [each for each in results if isinstance(each, Failed)]
    best = [each.best for each in found if each.best is not None]
    if as_json:
        print_json(
            {
                "folder": str(folder.path),
                "limits": {each.name + _repetition(each): _figures(each) for each in best},
                "failed": {each.name: each.reason for each in failed},
            }
        )
    else:
        _show(best, folder.path)
    return 1 if failed or len(best) < len(found) else 0


def pairs(
    count: Annotated[
        list[int] | None, typer.Option(min=1, max=9000, help="Pairs; may be repeated. Default: 50 to 2,000.")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "--join",
            metavar=f"none|{METAVAR}",
            help="none: one broker; else four sites with this strategy. May be repeated.",
        ),
    ] = None,
    settings: StrategyOptions = None,
    rate: Annotated[float, typer.Option(help="Messages a second of all together.", min=1)] = 1000.0,
    quota: Quota = 0.15,
    preset: Preset = "short",
    to: To = None,
    as_json: Json = False,
) -> int:
    _need()
    from brokerweave.bench.pairs import COUNTS, series
    from brokerweave.bench.scenario import times
    from brokerweave.plugin import registry

    joins, counts = tuple(strategy or ("none", registry.DEFAULT)), tuple(count or COUNTS)
    scenarios = with_options(series(joins, counts, quota, times(preset or "short"), rate), settings)
    described = {
        "quota": quota,
        "preset": preset,
        "rate": rate,
        "joins": joins,
        "counts": counts,
        **_told(settings),
    }
    return _measure_each("pairs", described, scenarios, to, as_json)


def failover(
    kill: Annotated[
        list[int] | None, typer.Option(min=0, max=3, help="Sites to be killed; may be repeated.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, max=2000, help="Publishers with a subscriber each.")] = 100,
    strategy: Annotated[
        str | None, typer.Option("--strategy", "--join", metavar=METAVAR, help=STRATEGY_HELP)
    ] = None,
    settings: StrategyOptions = None,
    rate: Annotated[float, typer.Option(help="Messages a second of all together.", min=1)] = 1000.0,
    quota: Quota = 0.5,
    preset: Preset = "short",
    to: To = None,
    as_json: Json = False,
) -> int:
    _need()
    from brokerweave.bench.failover import DEFAULT, SHORT, series
    from brokerweave.bench.scenario import times

    killed, join = tuple(kill or (1, 2)), strategy or DEFAULT
    chosen = times(preset) if preset and preset != "short" else SHORT
    scenarios = with_options(series(killed, pairs, join, quota, chosen, rate), settings)
    described = {
        "quota": quota,
        "preset": preset,
        "rate": rate,
        "join": join,
        "pairs": pairs,
        "kill": killed,
        **_told(settings),
    }
    return _measure_each("failover", described, scenarios, to, as_json)


def compare(
    strategy: Strategies = None,
    settings: StrategyOptions = None,
    nodes: Annotated[int, typer.Option(min=2, max=16, help="Sites.")] = 3,
    rate: Annotated[float, typer.Option(help="Messages a second of all together.", min=1)] = 200.0,
    seconds: Annotated[float, typer.Option(help="How long each is measured.", min=0.5, max=3600)] = 5.0,
    to: To = None,
    as_json: Json = False,
) -> int:
    _need()
    from brokerweave.bench import compare as comparing
    from brokerweave.bench import report, run_indexes
    from brokerweave.bench.report.content import Reported
    from brokerweave.bench.series import Failed, measure_all
    from brokerweave.bench.starting import one_benchmark, open_run
    from brokerweave.lab import available
    from brokerweave.plugin import registry

    strategies = tuple(strategy or registry.known_strategies())
    broker = "amqtt" if available()["mosquitto"] else "mosquitto"
    scenarios = with_options(comparing.series(strategies, nodes, rate, seconds, broker), settings)
    described = {
        "strategies": strategies,
        "nodes": nodes,
        "rate": rate,
        "seconds": seconds,
        "broker": broker,
        **_told(settings),
    }
    with one_benchmark(tell):
        folder = open_run("compare", described, to)
        failed = [each for each in measure_all(scenarios, folder, tell) if isinstance(each, Failed)]
        if folder.measurements():
            run_indexes.compute(folder)
    tell("")
    if len(failed) < len(scenarios):
        results = Reported.of(folder).results
        written = report.write(report.document([folder]), folder.path)
        if as_json:
            figures = [comparing.compared(each).to_dict() for each in results]
            print_json({"folder": str(folder.path), "strategies": figures})
        else:
            shown = table(*comparing.HEAD)
            for row in comparing.rows(results):
                shown.add_row(*row)
            console().print(shown)
            for path in written:
                console().print(f"written: {path}", soft_wrap=True)
    for each in failed:
        typer.echo(f"brokerweave: {each.name}: {each.reason}", err=True)
    return 1 if failed else 0


def _measure_each(
    kind: str, described: dict[str, Any], scenarios: Sequence[Scenario], to: Path | None, as_json: bool
) -> int:
    """One measurement of each scenario, kept and shown."""
    from brokerweave.bench.series import Failed, measure_all
    from brokerweave.bench.starting import one_benchmark, open_run

    with one_benchmark(tell):
        folder = open_run(kind, described, to)
        results = measure_all(scenarios, folder, tell)
    done = [each for each in results if not isinstance(each, Failed)]
    failed = {each.name: each.reason for each in results if isinstance(each, Failed)}
    if as_json:
        figures = [{"name": each.name, **_figures(each)} for each in done]
        print_json({"folder": str(folder.path), "measurements": figures, "failed": failed})
    else:
        _show(done, folder.path)
    return 1 if failed else 0


def _need() -> None:
    """One line instead of a traceback where the extra is not installed."""
    from importlib.util import find_spec

    from brokerweave.errors import ConfigError

    if not (find_spec("pyarrow") and find_spec("numpy")):
        raise ConfigError("bench needs more than is installed: pip install 'brokerweave[bench]'")


def _told(settings: Sequence[str] | None) -> dict[str, Any]:
    """For a run's folder."""
    return {"set": list(settings)} if settings else {}


def with_options(scenarios: Sequence[Scenario], settings: Sequence[str] | None) -> list[Scenario]:
    """Each with those of the options that are of its strategy. Raises `ConfigError` for one that is of
    none."""
    from dataclasses import replace

    from brokerweave.bench.scenario import joined_by
    from brokerweave.config import nearest
    from brokerweave.errors import ConfigError

    by_strategy: dict[str, list[str]] = {}
    for each in scenarios:
        if strategy := joined_by(each.join):
            by_strategy[strategy.name] = []
    for text in settings or ():
        name = text.partition(".")[0].strip()
        if name not in by_strategy:
            raise ConfigError(
                f"--set {text}: no strategy {name!r} is measured here{nearest(name, by_strategy)}"
            )
        by_strategy[name].append(text)
    made = []
    for each in scenarios:
        strategy = joined_by(each.join)
        mine = given(each.join, by_strategy[strategy.name]) if strategy else {}
        made.append(replace(each, options={**each.options, **mine}))
    return made


def _adapted(
    scenario: Scenario, preset: str | None, strategy: str | None, settings: Sequence[str] | None
) -> Scenario:
    """With the times, the strategy and its options that flags name, if they do."""
    from dataclasses import replace

    from brokerweave.bench.scenario import times

    spans = times(preset) if preset else scenario.times
    adapted = replace(scenario, times=spans, join=strategy or scenario.join)
    return with_options([adapted], settings)[0]


def tell(text: str) -> None:
    """Progress: in place on a terminal; whole lines are kept, also in a pipe."""
    if text.endswith("\n"):
        progress("")
        print(text, end="", file=sys.stderr, flush=True)
    else:
        progress(text)


def _figures(done: Measurement) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "measurement": done.id,
        "rate": done.rate,
        "interval_s": done.interval_s,
        "counters": asdict(done.counters),
        "bottleneck": asdict(done.bottleneck),
    }


def _latency(counted: WindowCounts) -> str:
    """Empty if nothing was measured, as with l-clients that publish less often than the window is long."""
    if not counted.latency_worst_ms:
        return ""
    return f"{counted.latency_mean_ms:.2f} ({counted.latency_p50_ms:.2f}, {counted.latency_p99_ms:.2f})"


def _repetition(done: Measurement) -> str:
    return f" #{done.repeat + 1}" if done.repeat else ""


def _show(measurements: Sequence[Measurement], folder: Path) -> None:
    shown = table("what", "in/s", "out/s", "lost", "doubled", "disordered", "latency, ms (p50, p99)", "late")
    for each in measurements:
        c = each.counters
        shown.add_row(
            each.name + _repetition(each),
            f"{c.ingress_per_s:,.0f}",
            f"{c.egress_per_s:,.0f}",
            f"{c.lost:,}",
            f"{c.doubled:,}",
            f"{c.disordered:,}",
            _latency(c),
            f"{c.late_sends:,}",
        )
    if measurements:
        console().print(shown)
    for each in measurements:
        if each.bottleneck.tool:
            console().print(f"{each.name}: the tool was the bottleneck: {each.bottleneck.reason}")
    console().print(f"kept in {folder}")

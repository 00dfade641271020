"""`brokerweave bench migration`: clients that move between sites, in EMMA's eight events.

Owns its arguments and what it prints. Must not know: how anything is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerweave.cli.output import console, help_text, progress
from brokerweave.cli.running_commands import Json, print_json

if TYPE_CHECKING:
    from brokerweave.bench.migration.playing import PlayOptions
    from brokerweave.bench.migration.scenario import MigrationScenario

_HELP = """Move clients between sites in three emulated regions, through EMMA's eight events.

Real brokers, nodes, gateways and a controller, in regions that a relay keeps 20 and 80 ms apart (round trip).
Two groups of gateways, each with a subscriber and seven publishers, and a global topic. A checker that knows
only what was acknowledged and what arrived counts lost, doubled and disordered messages of each subscriber.
--procedure both plays it with EMMA's own procedure and policy as well. Needs root on Linux. Exit code 1: a
promise was broken.

\b
Examples:
  brokerweave bench migration
  brokerweave bench migration --qos 1 --procedure both
  brokerweave bench migration --storm 1000 --at-once 50 --qos 2
  brokerweave bench report bench-runs/migration-...
"""
RATES = {0: 10.0, 1: 1.0, 2: 1.0}
"""Messages a second of a publisher: the paper's, and the least with acknowledgements."""
STORM_RATES = {1: 500.0, 2: 300.0}
"""Messages a second of all together."""
KEPT = "kept in {}; `brokerweave bench report` makes a page of it"


def register(bench: typer.Typer) -> None:
    bench.command("migration", help=help_text(_HELP))(migration)


def migration(
    procedure: Annotated[
        str, typer.Option(metavar="planned|emma|both", help="Ours, the paper's, or one after the other.")
    ] = "planned",
    qos: Annotated[int, typer.Option(min=0, max=2, help="Of publishers and subscribers.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(min=1, help="Messages a second of each publisher; default: 10 at QoS 0, else 1."),
    ] = None,
    preset: Annotated[
        str, typer.Option(metavar="short|paper", help="Phases, rounds and measurements: quick, or EMMA's.")
    ] = "short",
    phase: Annotated[
        float | None, typer.Option(min=2, help="Seconds from one event to the next; default: as the preset.")
    ] = None,
    gateways: Annotated[int, typer.Option(min=1, max=100, help="Of each group.")] = 10,
    policy: Annotated[
        str, typer.Option(help="What decides with our procedure; EMMA's has Algorithm 1.")
    ] = "steady",
    end: Annotated[
        str, typer.Option(metavar="sigterm|kill", help="How the site in us-east ends (event 8).")
    ] = "sigterm",
    storm: Annotated[
        int,
        typer.Option(min=0, max=4000, help="Instead of the events: move so many clients to another site."),
    ] = 0,
    at_once: Annotated[int, typer.Option(min=1, max=50, help="Of a storm: moves under way at a time.")] = 1,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The run's folder; default: a new one.")
    ] = None,
    as_json: Json = False,
) -> int:
    if storm:
        return _storm(storm, at_once, qos, rate, to, as_json)
    from brokerweave.bench.migration.playing import PlayOptions
    from brokerweave.bench.migration.procedures import PRESETS, Procedure
    from brokerweave.bench.migration.scenario import eight_events

    seconds, times = PRESETS[_one_of("--preset", preset, PRESETS)]
    choices = {"planned": [Procedure.PLANNED], "emma": [Procedure.EMMA], "both": list(Procedure)}
    scenario = eight_events(RATES[qos] if rate is None else rate, qos, phase or seconds, gateways)
    kill = _one_of("--end", end, ("sigterm", "kill")) == "kill"
    options = [
        PlayOptions(each, times, policy if each is Procedure.PLANNED else "emma", kill)
        for each in choices[_one_of("--procedure", procedure, choices)]
    ]
    return _play(scenario, options, to, as_json)


def _play(scenario: MigrationScenario, options: list[PlayOptions], to: Path | None, as_json: bool) -> int:
    from brokerweave.bench.migration import computing, promises
    from brokerweave.bench.migration.playing import play
    from brokerweave.bench.starting import alone, open_run
    from brokerweave.cli import bench_migration_view as view
    from brokerweave.cli.bench_commands import tell

    described = {
        **scenario.to_dict(),
        "topics": scenario.topics,
        "policies": {each.procedure.value: each.policy for each in options},
        "end": "kill" if options[0].kill else "sigterm",
    }
    with alone(tell):
        folder = open_run("migration", described, to)
        done = [play(scenario, each, folder, tell) for each in options]
    progress("")
    found = [computing.compute(folder, each)[0] for each in done]
    wrong = [said for each in found for said in promises.broken(each, killed=options[0].kill)]
    cpu = [view.cpu(folder, each) for each in done]
    if as_json:
        figures = [{**each.to_dict(), "cpu": used} for each, used in zip(found, cpu, strict=True)]
        print_json({"folder": str(folder.path), "procedures": figures, "broken": wrong})
    else:
        view.show_events([each.to_dict() for each in found], cpu)
        console().print(KEPT.format(folder.path))
    for each in wrong:
        typer.echo(f"brokerweave: {each}", err=True)
    return 1 if wrong else 0


def _storm(clients: int, at_once: int, qos: int, rate: float | None, to: Path | None, as_json: bool) -> int:
    from dataclasses import asdict

    from brokerweave.bench.migration import computing, promises
    from brokerweave.bench.migration.storm import StormOptions, bound_ms, storm
    from brokerweave.bench.starting import alone, open_run
    from brokerweave.cli import bench_migration_view as view
    from brokerweave.cli.bench_commands import tell
    from brokerweave.errors import ConfigError

    if not qos:
        raise ConfigError("--storm: give --qos 1 or 2, of which something is promised")
    options = StormOptions(clients, at_once, qos, rate or STORM_RATES[qos])
    topics = ["storm/up", *(f"storm/{number}" for number in range(clients))]
    with alone(tell):
        folder = open_run("migration", {"storm": asdict(options), "topics": topics, "qos": qos}, to)
        done = storm(options, folder, tell)
    progress("")
    found, _ = computing.compute(folder, done)
    wrong, used, bound = promises.broken(found, killed=False), view.cpu(folder, done), bound_ms(options)
    if as_json:
        figures = {**found.to_dict(), "cpu": used, "gap_bound_ms": bound}
        print_json({"folder": str(folder.path), "storm": figures, "broken": wrong})
    else:
        view.show_storm(found.to_dict(), used, bound, options.interval)
        console().print(KEPT.format(folder.path))
    for each in wrong:
        typer.echo(f"brokerweave: {each}", err=True)
    return 1 if wrong else 0


def _one_of(flag: str, given: str, known: Any) -> str:
    from brokerweave.config import nearest
    from brokerweave.errors import ConfigError

    if given not in known:
        raise ConfigError(f"{flag}: {given!r} is not one of {', '.join(known)}{nearest(given, known)}")
    return given

"""`brokerweave bench overlay`: the five experiments of the overlay's thesis, and runs of many nodes.

Owns its arguments and what it prints. Must not know: how anything is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli.output import console, help_text, progress, table
from brokerweave.cli.running_commands import Json, print_json

if TYPE_CHECKING:
    from brokerweave.bench.report.document import Table

_HELP = """Compare direct, guided and scribe, and a star, as the thesis of the overlay did.

Nodes run in virtual time with the code of real ones, links open on demand. Experiments: 4.2.1 subscribers,
4.2.2 publishers, 4.2.3 topics, 4.2.4 nodes, 4.2.5 all coordinators killed. Printed are the worst node's
latency and bytes, their ratios to scribe and to the star, and the targets. --scale runs 1,000 and 10,000
nodes instead. report.html, report.md and overlay.json are in the run's folder. Exit code 1: a target was
missed.

\b
Examples:
  brokerweave bench overlay
  brokerweave bench overlay --experiment 4.2.1 --experiment 4.2.5 --seeds 3
  brokerweave bench overlay --scale
"""


def register(bench: typer.Typer) -> None:
    bench.command("overlay", help=help_text(_HELP))(overlay)


def overlay(
    experiment: Annotated[
        list[str] | None, typer.Option(metavar="NUMBER", help="Such as 4.2.1; may be repeated. Default: all.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=5, max=1000, help="Nodes.")] = 50,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds, the same for all strategies.")] = 10,
    uplink: Annotated[float, typer.Option(min=0.1, help="Mbit/s that a node can send.")] = 1000.0,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this strategy, such as 'guided F=5'; repeatable."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, first and last levels; with --scale fewer nodes.")
    ] = False,
    scale: Annotated[bool, typer.Option("--scale", help="Runs of 1,000 and 10,000 nodes instead.")] = False,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The run's folder; default: a new one.")
    ] = None,
    as_json: Json = False,
) -> int:
    import json
    import time

    from brokerweave.bench import report
    from brokerweave.bench.overlay import experiments, many, ratios, reporting, running
    from brokerweave.bench.starting import alone, open_run
    from brokerweave.config import nearest
    from brokerweave.errors import ConfigError

    contenders = [each for each in experiments.CONTENDERS if not only or each.name in only]
    for name in only or ():
        if name not in (names := [each.name for each in experiments.CONTENDERS]):
            raise ConfigError(f"no strategy here is called {name!r}{nearest(name, names)}")
    chosen = experiments.experiments(experiment or experiments.CHOICES, nodes, uplink * 1e6, quick=quick)
    numbers = range(1, 2 if quick else seeds + 1)
    described = {
        "experiments": [each.number for each in chosen],
        "nodes": nodes,
        "uplink": uplink,
        "seeds": len(numbers),
        "strategies": [each.name for each in contenders],
        "quick": quick,
        "scale": scale,
    }
    began = time.monotonic()
    outcome, rows = None, list[many.ScaleRow]()
    with alone(progress):
        folder = open_run("overlay", described, to)
        if scale:
            rows = many.run(many.cases(uplink * 1e6, quick=quick), 1, progress)
        else:
            found = running.measure(experiments.jobs(chosen, contenders, numbers), progress)
            outcome = ratios.Outcome(chosen, contenders, numbers, found)
    progress("")
    seconds = time.monotonic() - began
    figures = reporting.to_json(outcome, rows, seconds)
    (folder.path / "overlay.json").write_text(json.dumps(figures, indent=2) + "\n")
    written = report.write(reporting.document(folder.run(), outcome, rows), folder.path)
    wrong = many.problems(rows)
    if outcome is not None:
        wrong += ratios.problems(outcome, reporting.ratio_rows(outcome))
    if as_json:
        print_json({"folder": str(folder.path), **figures, "problems": wrong})
    else:
        _print(reporting.ratio_table(outcome) if outcome is not None else reporting.many_table(rows))
        if chosen_rows := outcome.auto_rows() if outcome is not None else many.auto_rows(rows):
            _print(reporting.auto_table(chosen_rows))
        console().print(f"it took {seconds:.0f} s")
        for path in written:
            console().print(f"written: {path}", soft_wrap=True)
    for each in wrong:
        typer.echo(f"brokerweave: {each}", err=True)
    return 1 if wrong else 0


def _print(made: Table) -> None:
    shown = table(*made.head)
    for row in made.rows:
        shown.add_row(*row)
    console().print(shown)

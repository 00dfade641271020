"""`brokerweave sim`: nodes in virtual time, under faults, held to their promises.

Owns its arguments and how results are shown. Must not know: how a run is made, what is promised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli import scale_command, sim_membership_command
from brokerweave.cli.output import console, help_text, progress, table
from brokerweave.cli.strategy_option import StrategyName, StrategyOptions, given, known
from brokerweave.errors import ConfigError

if TYPE_CHECKING:
    from brokerweave.sim.many import SeedSummary
    from brokerweave.sim.run import SeedOutcome, SimOptions

_HELP = """Run nodes, brokers and clients in virtual time, inject faults, and check what is promised.

Each seed is one run: the same seed and options give the same run, to the last byte. A seed that fails is
printed with the shortest schedule that still fails and a trace. Exit code 0 if every seed holds, 1 if not.

\b
Examples:
  brokerweave sim --strategy sf --nodes 7 --faults all --seeds 100 --seed 1
  brokerweave sim --faults kill,partition --seeds 1 --seed 42 --json
  brokerweave sim --strategy my_package.hub:Hub --nodes 5
"""
_TRACE_LINES = 60


def register(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True, help=help_text(_HELP))
    group.callback()(sim)
    scale_command.register(group)
    sim_membership_command.register(group)
    app.add_typer(group, name="sim")


def sim(
    context: typer.Context,
    strategy: StrategyName = None,
    settings: StrategyOptions = None,
    nodes: Annotated[int, typer.Option(help="Sites in each run.", min=2, max=100)] = 4,
    faults: Annotated[
        str,
        typer.Option(
            help="What may go wrong: all, none, or names separated by commas: delay, cut, partition, kill, "
            "stop, disk-loss, broker, slow, queues, disk, skew, neighbours, churn, roam, late, link; and "
            "split, move, gateway and gateway-deaths, which all leaves out: all,gateway."
        ),
    ] = "all",
    seeds: Annotated[int, typer.Option(help="How many runs.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="The first seed; the others follow it.", min=0)] = 1,
    duration: Annotated[
        float, typer.Option(help="Seconds of virtual time with traffic and faults.", min=5, max=3600)
    ] = 20.0,
    wiring: Annotated[
        str, typer.Option(help="How nodes are linked: tree, ring, mesh, chords, or any (the seed decides).")
    ] = "tree",
    cycles: Annotated[
        str,
        typer.Option(help="As cycles under \\[links]: stand-by, or none, which only a tree can do."),
    ] = "stand-by",
    equal: Annotated[
        bool,
        typer.Option(
            "--equal-payloads",
            help="All publications have one payload: with a mesh whose brokers pass user properties.",
        ),
    ] = False,
    processes: Annotated[int, typer.Option(help="Runs side by side.", min=1, max=256)] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> int:
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return 0
    from brokerweave.sim import many

    options = replace(
        _options(known(strategy), nodes, faults, duration, wiring, cycles),
        equal=equal,
        options=given(known(strategy), settings or ()),
    )
    total = many.SeedSummary()
    for outcome in many.outcomes(range(seed, seed + seeds), options, processes):
        total.add(outcome)
        progress(f"{total.seeds} of {seeds} seeds, {len(total.failed)} failed")
    progress("")
    shortest = None
    if total.failed:
        progress(f"shortening seed {total.failed[0].seed}")
        shortest = many.shrink(total.failed[0], options)
        progress("")
    if as_json:
        print(json.dumps(_as_json(total, shortest), indent=2))
    else:
        _show(total, shortest)
    return 1 if total.failed else 0


def _refuse_options(context: typer.Context, command: str) -> None:
    """Options before a command's name belong to the other kind of run, and would have no effect."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(
                f"{option.opts[0]} should come after {command}: sim {command} {option.opts[0]} ..."
            )


def _options(strategy: str, nodes: int, faults: str, duration: float, wiring: str, cycles: str) -> SimOptions:
    from brokerweave.sim.run import SimOptions
    from brokerweave.sim.schedule import BESIDES, FAULTS

    groups = {"all": FAULTS, "none": ()}
    names = [name for each in faults.split(",") for name in groups.get(each, (each,)) if name]
    for name in names:
        if name not in (*FAULTS, *BESIDES):
            known = ", ".join((*FAULTS, *BESIDES))
            raise ConfigError(f"--faults does not know {name!r}; known are all, none, {known}")
    if cycles not in ("stand-by", "none"):
        raise ConfigError(f"--cycles should be stand-by or none; not {cycles!r}")
    return SimOptions(strategy, nodes, frozenset(names), duration, wiring, cycles == "stand-by")


def _show(total: SeedSummary, shortest: SeedOutcome | None) -> None:
    for outcome in total.failed[:20]:
        print(f"seed {outcome.seed} fails after {outcome.at:.1f} s: {outcome.problem}")
    if len(total.failed) > 20:
        print(f"and {len(total.failed) - 20} more")
    if shortest is not None:
        print(f"\nseed {shortest.seed}, the shortest schedule found that still fails ({shortest.problem}):")
        _lines(map(str, shortest.actions))
        print("\nwhat happened:")
        _lines(shortest.trace[-_TRACE_LINES:])
        print()
    shown = table("what", "how often")
    for name, value in sorted(total.counts.items()):
        shown.add_row(name, f"{value:,}")
    if total.possible:
        shown.add_row("allowances that there are", f"{total.possible:,}")
    for name, value in sorted(total.allowances.items()):
        shown.add_row(f"let pass, {name}", f"{value:,}")
    console().print(shown)
    print(f"{total.seeds - len(total.failed)} of {total.seeds} seeds hold")


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"  {line}")


def _as_json(total: SeedSummary, shortest: SeedOutcome | None) -> dict[str, object]:
    return {
        "seeds": total.seeds,
        "failed": [{"seed": o.seed, "at": round(o.at, 3), "problem": o.problem} for o in total.failed],
        "shortest": None
        if shortest is None
        else {
            "seed": shortest.seed,
            "problem": shortest.problem,
            "schedule": [[a.at, a.kind, *a.arguments] for a in shortest.actions],
            "trace": shortest.trace,
        },
        "counts": dict(sorted(total.counts.items())),
        "allowances": total.possible,
        "let_pass": dict(sorted(total.allowances.items())),
    }

"""What `brokerweave bench migration` prints.

Owns the tables' order. Must not know: how anything is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brokerweave.cli.output import console, table

if TYPE_CHECKING:
    from brokerweave.bench.folder import Measurement, RunFolder
    from brokerweave.bench.report.document import Table


def cpu(folder: RunFolder, done: Measurement) -> dict[str, Any]:
    """Cores that were busy on average, of all and by kind of process."""
    import os

    from brokerweave.bench import indexes
    from brokerweave.bench.folder import LOAD, MACHINE, RECEIVES, RESOURCES, SENDS, read_log

    logs = (read_log(folder.logs(done.id, schema), schema) for schema in (SENDS, RECEIVES, RESOURCES))
    used: dict[str, float] = {}
    for each in indexes.compute(done, *logs)[0].usage:
        kind = "gateways" if each.role.startswith("gateways/") else each.role.rpartition("/")[2]
        kind = "load" if each.role.startswith(LOAD) else kind
        used[kind] = used.get(kind, 0.0) + each.cpu
    cores = os.cpu_count() or 1
    ours = sum(cpu for kind, cpu in used.items() if kind != MACHINE)
    return {"cores": cores, "share": used.get(MACHINE, 0.0) / cores, "ours": ours / cores, "by": used}


def show_events(found: list[dict[str, Any]], cpus: list[dict[str, Any]]) -> None:
    from brokerweave.bench.report import migration as reporting

    console().print(reporting.REGIONS)
    show_table(reporting.side_by_side(found))
    for each, used in zip(found, cpus, strict=True):
        console().print(f"{each['name']}, event by event:")
        show_table(reporting.phase_table(each))
        show_table(reporting.site_table(each))
        show_cpu(used)
    console().print("EMMA's paper has 0.43 % lost per subscriber (QoS 0).")


def show_table(made: Table) -> None:
    shown = table(*made.head)
    for row in made.rows:
        shown.add_row(*row)
    console().print(shown)


def show_storm(found: dict[str, Any], used: dict[str, Any], bound: float, interval: float) -> None:
    from brokerweave.bench.report import migration as reporting

    console().print(reporting.REGIONS)
    show_table(reporting.side_by_side([found]))
    median = found["moves"]["gap_p50"]
    verdict = "within" if median <= bound else "above"
    console().print(
        f"median gap {median:.0f} ms, {verdict} the bound of {bound:.0f} ms: a round trip between the sites, "
        f"one from the gateway to the new site, 20 ms, and {1000 * interval:.0f} ms between two messages"
    )
    show_cpu(used)


def show_cpu(used: dict[str, Any]) -> None:
    from brokerweave.bench.migration.promises import MOST_CPU

    by = ", ".join(f"{kind} {cores:.2f}" for kind, cores in sorted(used["by"].items()))
    console().print(f"CPU: {used['share']:.0%} of {used['cores']} cores, {used['ours']:.0%} by this ({by})")
    if used["share"] > MOST_CPU:
        console().print(f"more than {MOST_CPU:.0%}: the machine is what was measured; lower --rate")

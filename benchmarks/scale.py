"""How cost grows with nodes, filters and churn: all runs, plots and tables of docs/scale.md.

`python -m benchmarks.scale` makes every run that benchmarks/scale.json does not have yet (`--again`: all of
them), each in a process of its own, and writes that file, docs/images/scale-*.svg and the tables in the page.
Owns which runs there are and what is read from them. Must not know: the scenarios (`brokerweave sim scale`,
`sim membership`).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import machine
from brokerweave.pipeline.plot import chart

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("scale.json")
PAGE = ROOT / "docs" / "scale.md"
IMAGES = ROOT / "docs" / "images"

Case = dict[str, Any]
Found = dict[str, Any]

SIZES = (10, 100, 1000, 10_000)
SHAPES = ("row", "binary", "star", "random")
FILTERS = (10, 100, 1000)
CHURN = (0.5, 2, 8, 32)
MIDDLE = 100
"""Nodes where something else than their number grows."""
MESH_SIZES = (10, 30, 100, 300, 1000)
"""A mesh has as many links as pairs of nodes: half a million at 1,000."""
MEMBERSHIP = "membership"
LONGEST_ROW = 1000
"""With more, news would still be on its way when the scenario ends."""


def growing_nodes(strategy: str, shape: str) -> list[Case]:
    sizes = [n for n in SIZES if shape != "row" or n <= LONGEST_ROW]
    return [{"nodes": n, "shape": shape, "strategy": strategy} for n in sizes]


def own_filters() -> list[Case]:
    """As many filters as nodes: nobody shares much."""
    return [{"nodes": n, "filters": n} for n in (10, 30, 100, 300)]


def growing_filters(wide: float) -> list[Case]:
    return [{"nodes": MIDDLE, "clients": 4, "filters": f, "wide": wide} for f in FILTERS]


def growing_churn(strategy: str) -> list[Case]:
    return [{"nodes": MIDDLE, "churn": c, "strategy": strategy} for c in CHURN]


def waiting() -> list[Case]:
    return [{"nodes": MIDDLE, "barrier": barrier} for barrier in (True, False)]


def growing_mesh() -> list[Case]:
    return [{"nodes": n, "strategy": "mesh", "churn": 0.5} for n in MESH_SIZES]


def growing_membership() -> list[Case]:
    return [
        {"command": MEMBERSHIP, "nodes": n, "duration": 30, "crashes": 10, "changes": 10} for n in MESH_SIZES
    ]


def cases() -> list[Case]:
    """Every run of `sim scale`, the short ones first."""
    listed = growing_nodes("sf", "binary") + growing_nodes("pf", "binary") + own_filters()
    listed += [case for shape in SHAPES for case in growing_nodes("sf", shape)]
    listed += growing_filters(0.0) + growing_filters(0.1) + growing_churn("sf") + waiting() + growing_mesh()
    return sorted({key(case): case for case in listed}.values(), key=lambda case: case["nodes"])


def key(case: Case) -> str:
    """A case as arguments of `brokerweave sim scale`; of membership, with that word before them."""
    words = [MEMBERSHIP] if "command" in case else []
    for name, value in sorted(case.items()):
        if name == "command":
            continue
        if name == "barrier":
            words += [] if value else ["--async"]
        elif (name, value) not in (("shape", "binary"), ("strategy", "sf"), ("wide", 0.0), ("churn", 2)):
            words += [f"--{name}", f"{value}"]
    return " ".join(words)


def command_of(case: Case) -> str:
    return f"brokerweave sim {'' if 'command' in case else 'scale '}{key(case)}"


def run(case: Case) -> Found:
    command = [sys.executable, "-m", *command_of(case).split(), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3600, check=True)
    found: Found = json.loads(done.stdout)
    found["when"] = {name: machine.facts()[name] for name in ("date", "commit", "machine", "python")}
    return found


def kept() -> dict[str, Found]:
    found: dict[str, Found] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


# What is read from a run


def per_change(found: Found) -> float:
    return float(found["churn"]["filters_sent"] / max(found["churn"]["changes"], 1))


def per_publication(name: str) -> Callable[[Found], float]:
    return lambda found: found[name] / max(found["published"], 1)


def settled(phase: str) -> Callable[[Found], float]:
    return lambda found: found[phase]["settled_after"] or 0.0


def kilobytes(found: Found) -> float:
    return float(found["cost"]["bytes_per_node"] / 1000)


def table_packets(found: Found) -> float:
    """Of a mesh: what each node sends when all links come up and tables are exchanged."""
    packets = found["subscribing"]["interest_packets"] + found["subscribing"]["barrier_packets"]
    return float(packets / found["options"]["nodes"])


def packets_per_change(found: Found) -> float:
    """Of a mesh: adverts and other control packets on all links, for each change of interest."""
    packets = found["churn"]["interest_packets"] + found["churn"]["barrier_packets"]
    return float(packets / max(found["churn"]["changes"], 1))


def crash_known(part: str) -> Callable[[Found], float]:
    return lambda found: found["crash_known"][part] or 0.0


def control_rate(found: Found) -> float:
    """Control packets a second on all links together, while clients change what they want."""
    packets = found["churn"]["interest_packets"] + found["churn"]["barrier_packets"]
    return float(packets / (0.55 * found["options"]["duration"]))


# What is made of it


class Results:
    def __init__(self, found: dict[str, Found]) -> None:
        self._found = found

    def of(self, listed: list[Case]) -> list[tuple[Case, Found]]:
        once = {key(case): case for case in listed}
        return [(case, self._found[name]) for name, case in once.items() if name in self._found]

    def line(
        self, listed: list[Case], across: str, up: Callable[[Found], float]
    ) -> list[tuple[float, float]]:
        return [(found["options"][across], up(found)) for _, found in self.of(listed)]

    def charts(self) -> dict[str, str]:
        line = self.line
        shapes = {shape: growing_nodes("sf", shape) for shape in SHAPES}
        sf, pf = shapes["binary"], growing_nodes("pf", "binary")
        return {
            "messages": chart(
                "Filters sent between nodes for each change (sf)",
                "nodes",
                "filters sent, all links",
                {
                    **{shape: line(cases, "nodes", per_change) for shape, cases in shapes.items()},
                    "one filter per node": line(own_filters(), "nodes", per_change),
                    "a new filter": line(sf, "nodes", lambda f: f["probe"]["filters_sent"]),
                },
            ),
            "crossings": chart(
                "Links crossed by each publication (binary tree)",
                "nodes",
                "links",
                {
                    "pf": line(pf, "nodes", per_publication("crossings")),
                    "sf": line(sf, "nodes", per_publication("crossings")),
                    "sites that want it": line(sf, "nodes", per_publication("wanted")),
                },
            ),
            "convergence": chart(
                "Until all nodes know a new filter (sf, links of 10 ms)",
                "nodes",
                "virtual seconds",
                {shape: line(cases, "nodes", settled("probe")) for shape, cases in shapes.items()},
            ),
            "memory": chart(
                "Memory of a node in the run, its client included",
                "nodes",
                "kB",
                {
                    "sf": line(sf, "nodes", kilobytes),
                    "pf": line(pf, "nodes", kilobytes),
                    "sf, one filter per node": line(own_filters(), "nodes", kilobytes),
                },
            ),
            "filters": chart(
                f"Filters a node knows of its neighbours (sf, {MIDDLE} nodes)",
                "different filters",
                "filters known, mean",
                {
                    "no wildcards": line(growing_filters(0.0), "filters", lambda f: f["table_mean"]),
                    "1 in 10 a wildcard": line(growing_filters(0.1), "filters", lambda f: f["table_mean"]),
                },
            ),
            "churn": chart(
                f"Control packets on all links ({MIDDLE} nodes)",
                "clients that change, per second",
                "packets per second",
                {"sf": line(growing_churn("sf"), "churn", control_rate)},
            ),
            "mesh": chart(
                "Packets between nodes for each change of interest",
                "nodes",
                "packets, all links",
                {
                    "mesh, adverts": line(growing_mesh(), "nodes", per_change),
                    "mesh, all packets": line(growing_mesh(), "nodes", packets_per_change),
                    "sf (binary), filters": line(sf, "nodes", per_change),
                },
            ),
            "membership": chart(
                "Until all know a crash (SWIM, lan, every 20th datagram lost)",
                "members",
                "virtual seconds",
                {
                    "median": line(growing_membership(), "nodes", crash_known("median")),
                    "worst of ten": line(growing_membership(), "nodes", crash_known("worst")),
                },
            ),
        }

    def tables(self) -> dict[str, str]:
        nodes = [case for shape in SHAPES for case in growing_nodes("sf", shape)]
        nodes += growing_nodes("pf", "binary") + own_filters()
        others = growing_filters(0.0) + growing_filters(0.1) + growing_churn("sf") + waiting()
        large = nodes + growing_mesh() + growing_membership()
        return {
            "checks": self._checks(),
            "nodes": _table(NODE_COLUMNS, self.of(nodes)),
            "others": _table(OTHER_COLUMNS, self.of(others)),
            "mesh": _table(MESH_COLUMNS, self.of(growing_mesh())),
            "membership": _table(MEMBERSHIP_COLUMNS, self.of(growing_membership())),
            "cost": _table(COST_COLUMNS, [pair for pair in self.of(large) if pair[0]["nodes"] >= 1000]),
        }

    def _checks(self) -> str:
        found = [found for _, found in self.of(cases())]
        sums = [sum(each[name] for each in found) for name in ("published", "checked", "missed", "doubled")]
        head = "| runs | publications | made at rest | of these missed at a site | doubled at a site |"
        numbers = (len(found), *sums)
        return "\n".join((head, "|---" * 5 + "|", "| " + " | ".join(f"{n:,}" for n in numbers) + " |"))


def _arguments(case: Case, found: Found) -> str:
    return f"`{key(case)}`"


Column = tuple[str, Callable[[Case, Found], str]]

COMMAND: Column = ("`brokerweave sim scale`", _arguments)
PER_CHANGE: Column = ("filters sent per change", lambda c, f: f"{per_change(f):,.1f}")
CROSSED: Column = ("links crossed per publication", lambda c, f: f"{per_publication('crossings')(f):,.1f}")
WANTED: Column = ("sites that wanted it", lambda c, f: f"{per_publication('wanted')(f):,.1f}")
KNOWN: Column = (
    "filters a node knows, mean (most)",
    lambda c, f: f"{f['table_mean']:,.1f} ({f['table_max']:,})",
)
KILOBYTES: Column = ("kB per node", lambda c, f: f"{kilobytes(f):,.0f}")
KNOWN_AFTER: Column = ("new filter known after, s", lambda c, f: _seconds(f["probe"]))
SUBACK_AFTER: Column = ("its SUBACK after, s", lambda c, f: f"{f['suback_after']:.2f}")

NODE_COLUMNS: list[Column] = [
    COMMAND,
    ("links end to end", lambda c, f: f"{f['hops']:,}"),
    PER_CHANGE,
    ("for a new filter", lambda c, f: f"{f['probe']['filters_sent']:,}"),
    CROSSED,
    WANTED,
    KNOWN,
    KILOBYTES,
    KNOWN_AFTER,
    SUBACK_AFTER,
    ("link back, settled after, s", lambda c, f: _seconds(f["returned"])),
]
OTHER_COLUMNS: list[Column] = [
    COMMAND,
    ("changes", lambda c, f: f"{f['churn']['changes']:,}"),
    PER_CHANGE,
    ("control packets/s, all links", lambda c, f: f"{control_rate(f):,.1f}"),
    KNOWN,
    KILOBYTES,
    CROSSED,
    ("link back: filters sent", lambda c, f: f"{f['returned']['filters_sent']:,}"),
]
MESH_COLUMNS: list[Column] = [
    COMMAND,
    ("packets of a node when links come up", lambda c, f: f"{table_packets(f):,.0f}"),
    ("changes", lambda c, f: f"{f['churn']['changes']:,}"),
    ("adverts per change", PER_CHANGE[1]),
    ("all packets per change", lambda c, f: f"{packets_per_change(f):,.1f}"),
    CROSSED,
    WANTED,
    ("filters a node knows, mean", lambda c, f: f"{f['table_mean']:,.1f}"),
    KILOBYTES,
    KNOWN_AFTER,
    SUBACK_AFTER,
    ("site back, settled after, s", lambda c, f: _seconds(f["returned"])),
]
MEMBERSHIP_COLUMNS: list[Column] = [
    ("`brokerweave sim`", _arguments),
    ("datagrams a second, of a node", lambda c, f: f"{f['datagrams_per_node_second']:,.1f}"),
    ("bytes", lambda c, f: f"{f['bytes_per_node_second']:,.0f}"),
    ("bytes of tables (TCP)", lambda c, f: f"{f['stream_bytes_per_node_second']:,.0f}"),
    ("crash known after, s: median", lambda c, f: f"{f['crash_known']['median']:.2f}"),
    ("worst", lambda c, f: f"{f['crash_known']['worst']:.2f}"),
    ("a return, worst", lambda c, f: f"{f['return_known']['worst']:.2f}"),
    ("metadata, worst", lambda c, f: f"{f['change_known']['worst']:.2f}"),
    ("suspected in vain", lambda c, f: f"{f['false_suspicions']:,}"),
    ("declared dead in vain", lambda c, f: f"{f['false_deaths']:,}"),
]
COST_COLUMNS: list[Column] = [
    ("`brokerweave sim`", lambda c, f: f"`{command_of(c).removeprefix('brokerweave sim ')}`"),
    ("real time, s", lambda c, f: f"{f['cost']['real_seconds']:,.0f}"),
    ("CPU, s", lambda c, f: f"{f['cost']['cpu_seconds']:,.0f}"),
    ("peak memory, MB", lambda c, f: f"{f['cost']['peak_bytes'] / 1e6:,.0f}"),
    ("date (UTC), commit", lambda c, f: f"{f['when']['date'].removesuffix(' UTC')}, {f['when']['commit']}"),
]


def _seconds(phase: dict[str, Any]) -> str:
    after = phase["settled_after"]
    return "not in time" if after is None else f"{after:.2f}"


def _table(columns: list[Column], listed: Iterable[tuple[Case, Found]]) -> str:
    lines = ["| " + " | ".join(name for name, _ in columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(read(case, found) for _, read in columns) + " |" for case, found in listed]
    return "\n".join(lines)


def fill(page: str, tables: dict[str, str]) -> str:
    """Put each table where the page has `<!-- table: name -->`, up to `<!-- end -->`."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = place.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", page)  # type: ignore[misc]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--again", action="store_true", help="repeat runs whose results are kept")
    parser.add_argument("--only", default="", help="only the run with exactly these arguments")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="leave out runs with more nodes")
    given = parser.parse_args()
    for case in cases() + growing_membership():
        wanted = given.only in ("", key(case)) and case["nodes"] <= given.most
        if wanted and (given.again or key(case) not in kept()):
            print(command_of(case), flush=True)
            found = run(case)  # before the file is read: two of these commands may run side by side
            RESULTS.write_text(json.dumps({**kept(), key(case): found}, indent=1, sort_keys=True) + "\n")
    results = Results(kept())
    IMAGES.mkdir(exist_ok=True)
    for name, svg in results.charts().items():
        (IMAGES / f"scale-{name}.svg").write_text(svg)
    tables = results.tables()
    if PAGE.exists():
        PAGE.write_text(fill(PAGE.read_text(), tables))
    for name, table in tables.items():
        print(f"\n{name}\n{table}")


if __name__ == "__main__":
    main()

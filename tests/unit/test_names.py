"""Names in the source tree: a class name means one thing, and nobody knows a strategy by name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import brokerweave
from tests.unit.test_layers import imported, registered, registered_strategies

SRC = Path(brokerweave.__file__).parent

KNOWS_STRATEGIES: dict[str, str] = {
    "config/keys.py": "the default of `strategy`",
    "plugin/registry.py": "the same default, for what runs without a configuration",
    "bench/failover.py": "what `bench failover` measures by default",
    "demo/mesh.py": "what the demo's second part shows",
    "sim/topology.py": "a wiring that has the same name, for --wiring",
    "bench/patterns.py": "a data table: the paper's patterns",
    "bench/migration/procedures.py": "a data table: what each procedure needs between sites",
    "bench/overlay/experiments.py": "a data table: what the overlay's thesis compares",
}
"""Files that may name strategies, and why. A reason that no longer holds is taken out: the test says so."""


def classes() -> dict[str, list[str]]:
    """Where each class name is defined, nested classes included."""
    found = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")
    return found


def test_each_class_name_is_defined_once() -> None:
    found = classes()
    assert "NodeCore" in found, "the search itself works"
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def strategy_names(tree: ast.AST, module: str) -> Iterator[str]:
    """Imports of a strategy's module, and strings that are a registered strategy's name."""
    modules, names = registered_strategies(), registered()
    for name in imported(tree, module, False):
        if any(name == each or name.startswith(each + ".") for each in modules):
            yield f"imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
            yield f"says {node.value!r} in line {node.lineno}"


def test_nobody_but_a_strategy_itself_knows_it_by_name() -> None:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        place = str(path.relative_to(SRC))
        module = "brokerweave." + place.removesuffix(".py").replace("/", ".")
        if not place.startswith("cooperation/"):
            found[place] = list(strategy_names(ast.parse(path.read_text()), module))
    known = {place for place, words in found.items() if words}
    assert {place: found[place] for place in known - KNOWS_STRATEGIES.keys()} == {}
    assert KNOWS_STRATEGIES.keys() - known == set(), "these no longer name a strategy"

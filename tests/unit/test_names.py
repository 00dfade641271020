"""One class name means one thing in the whole source tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import brokerweave

SRC = Path(brokerweave.__file__).parent


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

"""Prints docs/configuration.md, made from the keys: `python -m brokerweave.config.reference`.

Owns the page's form only; every word about a key comes from `config.keys` or from what a strategy
declares, and a test compares the page with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

from brokerweave.config import show
from brokerweave.config.keys import SECTIONS, Key, NeighbourSection, TapSection, keys_of
from brokerweave.plugin import Strategy, options_of, registry

_OPENING = """\
# Configuration

`brokerweave node NODE.toml` reads a TOML file. Each key has a flag, too (but for `exclude` and `sample` of a
tap), and a flag wins over the file; the flag of a list is given once for each value. A strategy or a listener
may declare options: they stand in the section with its name, and `--set NAME.KEY=VALUE` is their flag.
`brokerweave node NODE.toml --check` shows each value and where it came from. A key that is not on this page
is an error. A relative path in a file is relative to that file. SIGHUP makes a node read its file again and
take over neighbours, `[limits]` and the access list; for all else it has to be restarted.

*Counted* means that `brokerweave status` shows how often it happened.

```toml
[node]
id = "a"
listen = "127.0.0.1:1883"
broker = "127.0.0.1:1884"
link_listen = "127.0.0.1:7000"
data_dir = "/var/lib/brokerweave/a"

[[neighbour]]
id = "b"
address = "127.0.0.1:7001"
```

*This page is made by `make docs` from `src/brokerweave/config/keys.py` and from what strategies declare.*
"""


def reference() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _OPENING
    for section, shape in SECTIONS.items():
        yield from section_lines(f"[{section}]", shape, keys_of(section, shape), True)
    for strategy in registry.shipped():
        if options_of(strategy):
            yield from _strategy(strategy)
    yield from section_lines("[[tap]]", TapSection, keys_of("tap", TapSection), False)
    yield "As a flag: `--tap FILTER`, once for each; `exclude` and `sample` have none.\n"
    yield from section_lines("[[neighbour]]", NeighbourSection, keys_of("neighbour", NeighbourSection), False)
    yield "As a flag: `--neighbour ID=HOST:PORT`, once for each.\n"


def page(
    opening: str, sections: Mapping[str, type[object]], lists: Mapping[str, type[object]], closing: str
) -> str:
    """The page of a process whose keys all stand in sections and in lists of tables."""
    lines = [opening]
    for name, shape in sections.items():
        lines += section_lines(f"[{name}]", shape, keys_of(name, shape), True)
    for name, shape in lists.items():
        lines += section_lines(f"[[{name}]]", shape, keys_of(name, shape), False)
    return "\n".join([*lines, closing])


def section_lines(title: str, shape: type[object], keys: Iterator[Key], flags: bool) -> Iterator[str]:
    """A section's part of a page; `flags`: each of its keys has one."""
    yield f"## {title}\n\n{inspect.cleandoc(shape.__doc__ or '')}\n"
    for key in keys:
        yield from _key(key, flags)


def _strategy(strategy: type[Strategy]) -> Iterator[str]:
    """The section that a strategy declares."""
    yield f"## [{strategy.name}]\n\n{inspect.cleandoc(strategy.__doc__ or '')}\n"
    for name, option in options_of(strategy).items():
        yield f"### `{name}`\n\n{option.doc}\n"
        yield f"- flag: `--set {strategy.name}.{name}=VALUE`"
        yield f"- value: {option.words}" + (f", in {option.unit}" if option.unit else "")
        yield f"- default: `{show(option.default)}`\n"


def _key(key: Key, flags: bool) -> Iterator[str]:
    yield f"### `{key.name}`\n\n{key.about.doc}\n"
    if flags:
        yield f"- flag: `{key.flag}`"
    unit = key.about.unit if key.about.unit and key.about.unit not in key.about.kind.words else ""
    yield f"- value: {key.about.kind.words}" + (f", in {unit}" if unit else "")
    yield "- required" if key.required else f"- default: {_default(key)}"
    if key.about.formula:
        yield f"- formula: {key.about.formula}"
    if key.about.cost:
        yield f"- cost: {key.about.cost}"
    yield ""


def _default(key: Key) -> str:
    return "none" if key.default in (None, ()) else f"`{show(key.default)}`"


if __name__ == "__main__":
    print(reference(), end="")

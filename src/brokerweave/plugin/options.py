"""Options that a plug-in declares: typed, with a default, a unit and a doc line.

Owns what an option is. Invariants: an option's type is the type of its default, and the default satisfies
the option's own bounds; reading one on an instance gives the configured value, or the default. Must not know:
where values come from (`brokerweave.config` reads them from the section that has the plug-in's name).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, overload

OptionValue: TypeAlias = bool | int | float | str
Value = TypeVar("Value", bool, int, float, str)


class HasOptions(Protocol):
    """A strategy or a listener: what the configuration says of its options, by name."""

    @property
    def options(self) -> Mapping[str, OptionValue]: ...


class Option(Generic[Value]):
    """A declared option. On the class it is itself; on an instance it is the value."""

    def __init__(
        self,
        default: Value,
        doc: str,
        unit: str,
        minimum: float | None,
        maximum: float | None,
        choices: tuple[str, ...],
        or_from: int | None = None,
    ) -> None:
        self.name = ""
        self.default: Value = default
        self.doc = doc
        self.unit = unit
        self.minimum = minimum
        self.maximum = maximum
        self.choices = choices
        self.or_from = or_from
        problem = self.problem(default)
        if problem:
            raise ValueError(f"the default {default!r} of the option {doc!r} should be {problem}")

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[Value]: ...

    @overload
    def __get__(self, instance: HasOptions, owner: type) -> Value: ...

    def __get__(self, instance: HasOptions | None, owner: type) -> Option[Value] | Value:
        if instance is None:
            return self
        value: Any = instance.options.get(self.name, self.default)  # of the right type: checked when read
        return cast(Value, value)

    @property
    def words(self) -> str:
        """What values there are, in words."""
        if self.choices:
            named = ", ".join(map(repr, self.choices))
            one_of = f"one of {named}" if len(self.choices) > 1 else named
            return one_of if self.or_from is None else f"{one_of} or a whole number from {self.or_from}"
        low = f"from {self.minimum:.15g}" if self.minimum is not None else ""
        high = f"to {self.maximum:.15g}" if self.maximum is not None else ""
        return " ".join(filter(None, (_KINDS[type(self.default)], low, high)))

    def read(self, value: object) -> Value:
        """A value without a `problem`, as the option has it: a whole number may stand for any number."""
        kind: Any = type(self.default)
        return cast(Value, kind(value))

    def problem(self, value: object) -> str:
        """What the value should be and is not, in words; "" if it is good."""
        wanted = type(self.default)
        if self.or_from is not None and type(value) in (int, str) and str(value).isdecimal():
            return "" if int(str(value)) >= self.or_from else self.words
        if wanted is float and type(value) is int:
            value = float(value)
        bad = type(value) is not wanted or (self.choices and value not in self.choices)
        if not bad and isinstance(value, (int, float)):
            low = -inf if self.minimum is None else self.minimum
            high = inf if self.maximum is None else self.maximum
            bad = not (isfinite(value) and low <= value <= high)
        return self.words if bad else ""


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
}


def option(
    default: Value,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    or_from: int | None = None,
) -> Option[Value]:
    """Declare an option in the body of a plug-in's class: `window = option(30.0, "...", unit="seconds")`.

    Users set it in the section with the plug-in's name, or by `--set NAME.KEY=VALUE`. `doc` says in one or
    two sentences what it does and costs; `minimum`, `maximum` and `choices` are checked when the node starts.
    With `or_from` a text option takes a whole number as well, from this one on, and has it as text.
    """
    return Option(default, doc, unit, minimum, maximum, choices, or_from)


AnyOption: TypeAlias = Option[bool] | Option[int] | Option[float] | Option[str]


def options_of(plugin: type) -> dict[str, AnyOption]:
    """Every option that a plug-in's class or one of its bases declares, by name."""
    found: dict[str, AnyOption] = {}
    for base in reversed(plugin.__mro__):
        found |= {name: value for name, value in vars(base).items() if isinstance(value, Option)}
    return found

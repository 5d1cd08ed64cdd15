"""Formulas of one variable: small trees, equal when they are written the same way, that can be evaluated and composed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np


def _special(name: str) -> Callable[..., Any]:
    """A function of scipy.special, which takes long to load and is loaded when it is used."""
    return lambda z: getattr(import_module("scipy.special"), name)(z)


# What each operation computes. The enclosures of its derivatives: jets.py.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "multiply": np.multiply,
    "divide": np.divide,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "arctan": np.arctan,
    "sin": np.sin,
    "cos": np.cos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "exp2": np.exp2,
    "log2": np.log2,
    "expit": _special("expit"),
    "erf": _special("erf"),
}
KINKS = {"absolute": np.absolute, "maximum": np.maximum, "minimum": np.minimum}  # in kernels of pairs alone
UNARY = tuple(name for name in OPERATIONS if name not in ("add", "multiply", "divide"))
OPERATIONS |= KINKS


@dataclass(frozen=True)
class Formula:
    """operation(parts); the leaves are "variable" and "constant"."""

    operation: str
    parts: tuple[Formula, ...] = ()
    value: float = 0.0  # of a constant

    def __call__(self, z: Any) -> Any:
        """The value at z, in numpy's float64."""
        if self.operation == "variable":
            return z
        if self.operation == "constant":
            return np.float64(self.value)
        return OPERATIONS[self.operation](*(part(z) for part in self.parts))

    @property
    def starts_at_zero(self) -> bool:
        """Whether it has no value left of 0, because it takes the root of its variable itself."""
        root = self.operation == "sqrt" and self.parts == (VARIABLE,)
        return root or any(part.starts_at_zero for part in self.parts)

    def of(self, inner: Formula) -> Formula:
        """z -> self(inner(z))."""
        if self.operation == "variable":
            return inner
        return Formula(self.operation, tuple(part.of(inner) for part in self.parts), self.value)

    def __str__(self) -> str:
        if self.operation == "variable":
            return "z"
        if self.operation == "constant":
            return f"{self.value:.6g}"
        inner = [str(part) for part in self.parts]
        sign = {"add": " + ", "multiply": " * ", "divide": " / "}.get(self.operation)
        return f"({sign.join(inner)})" if sign else f"{self.operation}({', '.join(inner)})"


VARIABLE = Formula("variable")
SQUARE = Formula("square", (VARIABLE,))
RECIPROCAL = Formula("divide", (Formula("constant", value=1.0), VARIABLE))


def constant(value: float) -> Formula:
    """The formula that is this number."""
    return Formula("constant", value=float(value))


def apply(operation: str, *parts: Formula) -> Formula:
    """operation(parts)."""
    return Formula(operation, parts)

"""Targets: the functions to approximate. `Target` wraps a function with what is known about it; `get` has the built-in ones.

A target maps arrays (..., d, n), one token per column, to the same shape. `support` is the box [low, high] per row
outside which an equivariant target counts as 0 (Theorem 2), or the compact domain (Theorem 3).

The Lipschitz constant is for the entry-wise p-norm on both sides, ||f(X) - f(Y)||_p <= L ||X - Y||_p on the support.
Those of the built-in targets hold for every p in [1, inf]: they bound both the row sums and the column sums of the
Jacobian, i.e. its inf-norm and 1-norm, and Riesz-Thorin interpolates between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray, real_numbers, require_sequences
from provenformer.base.errors import ProvenformerError, TargetError

Function = Callable[[Any], Any]
AGREES = 1e-9  # two ways to compute a function in float64 differ by at most this share of its largest value
FLOAT_LIMIT = float(np.finfo(np.float64).max)
SIZE_LIMIT = 1 << 16  # numbers per token, tokens per sequence
MANY = 1 << 13  # sequences in the largest batch on which a function is tried,
PAIRS = 1 << 21  # or fewer: so many pairs of numbers of a sequence in all, since functions compare tokens


@dataclass(frozen=True)
class Target:
    """A sequence-to-sequence function and what is claimed of it (the claims are checked by sampling when it is used)."""

    fn: Function
    token_dim: int
    seq_len: int
    equivariant: bool = True
    lipschitz: float | None = None
    support: tuple[Any, Any] = (0.0, 1.0)
    name: str = "user function"
    # True when f is 0 on the border of its support, so that it is continuous on the whole space (the paper's F_PE).
    vanishes_outside: bool = False
    # True when f(XP) = f(X)P is your word, tried on samples: bounds are then taken for one order of every cube's tokens.
    vouched: bool = False

    def __post_init__(self) -> None:
        for name, least in (("token_dim", 1), ("seq_len", 2)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise ProvenformerError(f"{name}={value!r} is not a whole number; give an integer >= {least}.")
            if value < least:
                raise ProvenformerError(f"{name}={value!r} is below the limit {least}; give an integer >= {least}.")
            if value > SIZE_LIMIT:
                raise ProvenformerError(
                    f"{name}={str(value)[:40]} is above the limit {SIZE_LIMIT:,}; use smaller sizes."
                )
            object.__setattr__(self, name, int(value))  # numpy's integers overflow in exact counts
        if not callable(self.fn):
            raise ProvenformerError(
                f"fn={self.fn!r:.60} is not a function; give one from arrays (..., d, n) to arrays."
            )
        flags = ("equivariant", "vanishes_outside", "vouched")
        for name, expected in (*((flag, bool | np.bool_) for flag in flags), ("name", str)):
            value = getattr(self, name)
            if not isinstance(value, expected):
                raise ProvenformerError(
                    f"{name}={value!r:.60} is a {type(value).__name__}; give {'text' if expected is str else 'True or False'}."
                )
        shown = " ".join(repr(self.support).split())
        try:
            low, high = (np.broadcast_to(np.asarray(v, dtype=np.float64), (self.token_dim,)) for v in self.support)
        except (TypeError, ValueError, OverflowError) as error:
            raise ProvenformerError(
                f"support={shown} is not a box; give (low, high), each a number or one per row of a token."
            ) from error
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low < high)):
            raise ProvenformerError(f"support={shown} is not a finite box with low < high; give (low, high).")
        if not (high / 2 - low / 2 < FLOAT_LIMIT / 2).all():
            raise ProvenformerError(f"support={shown} is wider than float64 can hold; give a smaller box.")
        if self.lipschitz is not None and not _is_constant(self.lipschitz):
            raise ProvenformerError(f"lipschitz={self.lipschitz} is not a finite number >= 0; leave it out if unknown.")
        if self.lipschitz is not None:
            object.__setattr__(self, "lipschitz", float(self.lipschitz))
        for name in flags:
            object.__setattr__(self, name, bool(getattr(self, name)))
        if self.vouched and not self.equivariant:
            raise ProvenformerError("vouched=True is your word that f is equivariant; leave equivariant=False out.")
        object.__setattr__(self, "support", (tuple(low.tolist()), tuple(high.tolist())))

    @property
    def low(self) -> FloatArray:
        """Lower end of the support, per row."""
        return np.array(self.support[0])

    @property
    def high(self) -> FloatArray:
        """Upper end of the support, per row."""
        return np.array(self.support[1])

    def __call__(self, x: FloatArray) -> FloatArray:
        """f(x), with every way in which a user's function can misbehave turned into one line."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        try:
            y = real_numbers(self.fn(x.copy()))  # a function may work in place; nobody else's array is its to change
        except Exception as error:
            reason = " ".join(str(error).split())  # one line, whatever the function says
            raise ProvenformerError(
                f"target '{self.name}' raised {type(error).__name__}: {reason} on an input of shape {x.shape}; "
                "it must accept arrays (..., token_dim, seq_len)."
            ) from error
        if y.shape != x.shape:
            raise ProvenformerError(
                f"target '{self.name}' returned shape {y.shape} for input shape {x.shape}; "
                "it must keep the shape (..., token_dim, seq_len)."
            )
        if not np.all(np.isfinite(y)):
            bad = x[tuple(np.argwhere(~np.isfinite(y))[0][:-2])]
            raise ProvenformerError(
                f"target '{self.name}' returned a value that is not finite at X={bad.tolist()}; "
                "shrink its support or define it there."
            )
        return y

    def sample(self, count: int, seed: int = 0) -> FloatArray:
        """Uniform sequences from the support, shape (count, d, n)."""
        unit = np.random.default_rng(seed).random((count, self.token_dim, self.seq_len))
        return np.asarray(self.low[:, None] + unit * (self.high - self.low)[:, None])

    def _affordable(self, fewest: int, most: int) -> int:
        """How many sequences a function is tried on: PAIRS, within these limits."""
        return max(fewest, min(most, PAIRS // (self.token_dim * self.seq_len) ** 2))

    def equivariance_counterexample(
        self, samples: int | None = None, seed: int = 0
    ) -> tuple[FloatArray, list[int]] | None:
        """A sequence X and a permutation P with f(XP) != f(X)P beyond rounding, or None if sampling finds none.

        By default 64 sequences are tried, fewer of long ones.
        """
        x = self.sample(samples or self._affordable(2, 64), seed)
        y = self(x)
        scale = AGREES * float(np.abs(y).max())
        swap_and_cycle = ([1, 0, *range(2, self.seq_len)], [*range(1, self.seq_len), 0])  # they generate all
        for order in swap_and_cycle:
            wrong = np.abs(self(x[..., order]) - y[..., order]).max(axis=(-2, -1)) > scale
            if wrong.any():
                return x[int(np.argmax(wrong))], order
        return None

    def require_pointwise(self) -> None:
        """Raise if f(x) depends on anything but x: on the rest or the size of the batch (x.mean() instead of axis=-1), on
        chance, on earlier calls. As tried on batches of one, of five (or two) and of many (or three) sequences."""
        many = self.sample(self._affordable(3, MANY), seed=3)
        few = min(5, len(many) - 1)
        x, together = many[:few], self(many[:few])
        scale = AGREES * float(np.abs(together).max())
        if (np.abs(np.concatenate([self(one[None]) for one in x]) - together) > scale).any():
            raise TargetError(
                f"target '{self.name}' mixes the sequences of a batch: f of several differs from f of each; "
                "reduce over the last two axes only, for example axis=-1."
            )
        first, again = self(many), self(many[::-1])[::-1]
        if (np.abs(first[:few] - together) > scale).any() or (
            np.abs(first - again) > scale + AGREES * np.abs(first)
        ).any():
            raise TargetError(
                f"target '{self.name}' gives two results for one sequence: f must depend on nothing but X, neither on chance "
                "nor on earlier calls nor on the size of the batch."
            )

    def require_equivariance(self) -> None:
        """Raise, with the counter-example, if the target is declared equivariant and is not."""
        if self.equivariant and (found := self.equivariance_counterexample()):
            x, order = found
            raise ProvenformerError(
                f"target '{self.name}' is declared equivariant, but f(XP) != f(X)P for X={np.round(x, 4).tolist()} "
                f"and column order {order}; declare it with equivariant=False (Theorem 3)."
            )

    def require_vanishing(self, samples: int = 64, seed: int = 5) -> None:
        """Raise, with the counter-example, if the target is declared to vanish outside its support and does not on its border."""
        if not self.vanishes_outside:
            return
        rng = np.random.default_rng(seed)
        x = self.sample(samples, seed)
        scale = AGREES * float(np.abs(self(x)).max())
        which, row, column = (
            np.arange(samples),
            rng.integers(self.token_dim, size=samples),
            rng.integers(self.seq_len, size=samples),
        )
        x[which, row, column] = np.where(rng.random(samples) < 0.5, self.low[row], self.high[row])
        wrong = np.abs(self(x)).max(axis=(-2, -1)) > scale
        if wrong.any():
            raise ProvenformerError(
                f"target '{self.name}' is declared to vanish outside its support, but is not 0 on its border, at "
                f"X={np.round(x[int(np.argmax(wrong))], 4).tolist()}; leave vanishes_outside out."
            )

    def lipschitz_counterexample(self, norm_order: float, samples: int = 512, seed: int = 0) -> tuple[Any, Any] | None:
        """A pair X, Y that breaks the claimed Lipschitz constant in the entry-wise p-norm, or None."""
        if self.lipschitz is None:
            return None
        x = self.sample(samples, seed)
        rng = np.random.default_rng(seed + 1)
        # Pairs at many distances, moved in all entries and in single ones.
        step = rng.standard_normal(x.shape) * (rng.random(x.shape) < rng.choice([0.3, 1.0], size=(samples, 1, 1)))
        step *= 10.0 ** rng.uniform(-5, 0, size=(samples, 1, 1))
        y = np.clip(x + step, self.low[:, None], self.high[:, None])
        run = np.linalg.norm((y - x).reshape(samples, -1), norm_order, axis=1)
        rise = np.linalg.norm((self(y) - self(x)).reshape(samples, -1), norm_order, axis=1)
        wrong = rise > self.lipschitz * run * (1 + 1e-6) + 1e-12
        return (x[int(np.argmax(wrong))], y[int(np.argmax(wrong))]) if wrong.any() else None


def _is_constant(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        return real and bool(np.isfinite(float(value))) and value >= 0
    except OverflowError:  # a whole number beyond float64
        return False


# The built-in targets. They use only functions that can also be evaluated on intervals, and act row by row.


def _scaled_mean(x: Any) -> Any:
    """x_j * mean(x)."""
    return x * np.mean(x, axis=-1, keepdims=True)


def _softmax_mean(x: Any) -> Any:
    """sum_k x_k softmax_k(<x_j, x_k> / d): one attention head with identity weights."""
    scores = np.exp(np.sum(x[..., :, :, None] * x[..., :, None, :], axis=-3) / x.shape[-2])  # (..., j, k)
    weights = scores / np.sum(scores, axis=-1, keepdims=True)
    return np.sum(weights[..., None, :, :] * x[..., :, None, :], axis=-1)


def _centered(x: Any) -> Any:
    """x_j - mean(x)."""
    return x - np.mean(x, axis=-1, keepdims=True)


def _relative_max(x: Any) -> Any:
    """x_j - max(x)."""
    return x - np.max(x, axis=-1, keepdims=True)


RANK_WIDTH = 0.5  # two numbers this far apart are fully ordered


def _rank(x: Any) -> Any:
    """The share of the other tokens that lie below x_j, each comparison a ramp of width RANK_WIDTH."""
    n = x.shape[-1]
    below = np.clip((x[..., :, None] - x[..., None, :]) / RANK_WIDTH + 0.5, 0.0, 1.0)  # (.., j, k); 1/2 for k = j
    return (np.sum(below, axis=-1) - 0.5) / (n - 1)


def _reverse(x: Any) -> Any:
    """x_(n+1-j)."""
    return x[..., ::-1]


def _sort(x: Any) -> Any:
    """Each row in increasing order."""
    return np.sort(x, axis=-1)


def _cumulative_mean(x: Any) -> Any:
    """mean(x_1, .., x_j)."""
    return np.cumsum(x, axis=-1) / np.arange(1.0, x.shape[-1] + 1.0)


def _shift(x: Any) -> Any:
    """x_(j-1), and 0 for the first token."""
    return np.concatenate([x[..., :1] * 0.0, x[..., :-1]], axis=-1)


def _running_max(x: Any) -> Any:
    """max(x_1, .., x_j)."""
    return np.maximum.accumulate(x, axis=-1)


def _softmax_mean_lipschitz(n: int) -> float:
    # Row sums: 1 + mean absolute deviation (<= 1/2) + covariance (<= 1/4). Column sums: 2 max_k sum_j w_jk + 1/4, and
    # scores in [0, 1] give w_jk <= e / (e + n - 1). docs/targets.md has the two lines of algebra.
    return max(1.75, 2.0 * n * np.e / (np.e + n - 1) + 0.25)


@dataclass(frozen=True)
class _BuiltIn:
    fn: Function
    equivariant: bool
    lipschitz: Callable[[int], float]  # of seq_len, on [0, 1]


_BUILT_IN: dict[str, _BuiltIn] = {
    "scaled-mean": _BuiltIn(_scaled_mean, True, lambda _: 2.0),
    "softmax-mean": _BuiltIn(_softmax_mean, True, _softmax_mean_lipschitz),
    "centered": _BuiltIn(_centered, True, lambda n: 2.0 * (n - 1) / n),
    "relative-max": _BuiltIn(_relative_max, True, lambda n: max(2.0, n - 1.0)),
    "rank": _BuiltIn(_rank, True, lambda _: 2.0 / RANK_WIDTH),
    "reverse": _BuiltIn(_reverse, False, lambda _: 1.0),
    "sort": _BuiltIn(_sort, False, lambda _: 1.0),
    "cumulative-mean": _BuiltIn(_cumulative_mean, False, lambda n: sum(1.0 / j for j in range(1, n + 1))),
    "shift": _BuiltIn(_shift, False, lambda _: 1.0),
    "running-max": _BuiltIn(_running_max, False, float),
}


def names() -> Sequence[str]:
    """The built-in targets: first the equivariant ones, then those that need positions."""
    return tuple(_BUILT_IN)


def is_built_in(target: Target) -> bool:
    """Whether it is the listed target of its name on its box, not only named like one or of the same formula.

    Then all that it says of itself is this list's word; a Lipschitz constant may be left out.
    """
    if target.name not in _BUILT_IN:
        return False
    listed = get(target.name, target.token_dim, target.seq_len, target.support)
    facts = (target.equivariant, target.vanishes_outside) == (listed.equivariant, listed.vanishes_outside)
    return facts and target.lipschitz in (None, listed.lipschitz) and _is_same(target.fn, listed.fn)


def one_order_suffices(target: Target) -> bool:
    """Whether its distance from an equivariant network need be bounded for one order of the tokens only: this list's word that
    it is equivariant, or the user's."""
    return target.equivariant and (target.vouched or is_built_in(target))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two functions are one, or one formula in the same coordinates."""
    if not (isinstance(one, partial) and isinstance(other, partial)):
        return one is other
    same = one.func is other.func and len(one.args) == len(other.args) and not one.keywords
    return same and all(a is b or np.array_equal(a, b) for a, b in zip(one.args, other.args, strict=True))


def describe(name: str) -> str:
    """What a built-in target computes, in one line."""
    return str(_lookup(name).fn.__doc__)


def get(name: str, token_dim: int = 1, seq_len: int = 3, support: tuple[Any, Any] = (0.0, 1.0)) -> Target:
    """A built-in target. On another support it is the same formula in unit coordinates, output unscaled."""
    entry = _lookup(name)
    target = Target(entry.fn, token_dim, seq_len, entry.equivariant, name=name, support=support)
    steepest = float(1.0 / (target.high - target.low).min())
    fn = entry.fn
    if (target.low != 0).any() or (target.high != 1).any():
        fn = partial(_in_unit_coordinates, entry.fn, target.low[:, None], (target.high - target.low)[:, None])
    lipschitz = entry.lipschitz(seq_len) * steepest
    return Target(fn, token_dim, seq_len, entry.equivariant, lipschitz, support, name)


def _in_unit_coordinates(fn: Function, low: FloatArray, width: FloatArray, x: Any) -> Any:
    return fn((x - low) / width)


def _lookup(name: str) -> _BuiltIn:
    if name not in _BUILT_IN:
        raise ProvenformerError(f"unknown target '{name}'; choose one of: {', '.join(_BUILT_IN)}.")
    return _BUILT_IN[name]

"""Finite data: memorise given pairs of sequences. No grid, so no exponential cost.

With only S pairs, contexts are just those: a token is recoded where W_1 x passes its window, snapped to a whole number,
and from there on the sum construction applies, with codes drawn at random until all needed ids differ. That is
2 (different tokens) + (different columns of contexts) + O(d) layers, exact up to float64 rounding on the given inputs.
Where outputs of tokens that recur depend on the own token alone no context is needed: 3 (different tokens) + O(d) layers.
A constant takes O(d).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from provenformer.base.arrays import FloatArray, real_numbers
from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import ExactArray
from provenformer.certificates.certificate import Certificate
from provenformer.certificates.certify import ROUND, require_float64
from provenformer.certificates.claim import pairs_digest
from provenformer.compiler.request import require_whole
from provenformer.constructions.paper import values
from provenformer.constructions.paper.quantize import unit
from provenformer.constructions.plan import LAYER_LIMIT
from provenformer.constructions.relax import ID_RAMP, relax
from provenformer.constructions.sum import layers as sums
from provenformer.networks.modified import FeedForward, ModifiedNetwork, Run, ThreePiece
from provenformer.networks.stages import VALUES
from provenformer.networks.thin import Network
from provenformer.storage import save

if TYPE_CHECKING:
    from torch import nn

RECODE = "recode"
SMALLEST_GAP = 2.0**-32  # between different tokens, along the reading direction, relative to their size
FURTHER = 2.0**-20  # positions lie apart by more than inputs reach, also where adding 1 would be lost
SAME_OUTPUT = 2.0**-44  # outputs of one context that differ by less, relative to the largest, differ by rounding only
LOST = 2.0**-10  # of the largest output: an error beyond it is no rounding, the numbers were lost on their way
BASIS = "the network was run on every given input; the bound is the largest error over all of them, as executed."


@dataclass(frozen=True, eq=False, repr=False)
class Memorized:
    """A network that reproduces a finite data set."""

    inputs: FloatArray  # (count, d, n)
    outputs: FloatArray
    modified: ModifiedNetwork
    network: Network
    certificate: Certificate

    def to_torch(self) -> nn.Module:
        """The network as a torch module (see export/torch_module.py)."""
        return self.network.to_torch()

    def save(self, path: str | Path) -> None:
        """Write network, certificate, manifest and data to a folder."""
        data = {"inputs": self.inputs, "outputs": self.outputs}
        save(path, self.network, self.certificate, {"construction": "sum", "target": {"source": "data"}}, data)

    def __repr__(self) -> str:
        return f"Memorized({len(self.inputs):,} pairs, {self.network!r}, {self.certificate.short})"


def memorize(
    inputs: Any, outputs: Any, *, positional: bool = False, seed: int = 0, max_layers: int = LAYER_LIMIT
) -> Memorized:
    """A network g in T^(2,1,4) with g(inputs[i]) = outputs[i] for all i, up to float64 rounding.

    inputs, outputs: (count, token_dim, seq_len). A network without positions is equivariant, so two pairs whose inputs
    are permutations of each other must agree; with `positional=True` only equal inputs must.
    """
    x, y = _require_pairs(inputs, outputs)
    if require_whole("seed", seed) < 0:
        raise ProvenformerError(f"seed={seed} is negative; give a whole number from 0 up.")
    count, d, n = x.shape
    if 3 * count * n > max_layers:
        raise ProvenformerError(
            f"memorising {count:,} sequences of {n} tokens may need {3 * count * n:,} layers (limit {max_layers:,}); "
            "use fewer pairs or raise max_layers."
        )
    positions = _positions(x) if positional else np.zeros((d, n))
    columns = (x + positions).transpose(0, 2, 1).reshape(-1, d)  # as executed: float64 addition
    tokens, inverse = np.unique(columns, axis=0, return_inverse=True)
    if positional and len(tokens) < sum(len(np.unique(x[:, :, j], axis=0)) for j in range(n)):
        raise ProvenformerError(
            f"inputs reach from {x.min():.1e} to {x.max():.1e}, and beside such numbers some that differ are equal in float64; "
            "scale or round the inputs."
        )
    contexts = inverse.reshape(count, n)
    results = y.transpose(0, 2, 1)  # (count, n, d)
    kept = _consistent(contexts, results, positional)
    contexts, results = contexts[kept], results[kept]
    answers = results.reshape(-1, d)
    low, high = answers.min(axis=0), answers.max(axis=0)
    ramps: dict[str, Fraction] = {}
    facts: dict[str, Any] = {}
    if _same(low, high, answers):
        runs, low = _constant(float(np.abs(columns).max()), high), high
    else:
        runs, ramps, facts = _table(tokens, contexts, results, seed)
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    grid_positions = ExactArray(np.zeros((d, n), dtype=np.int64), 1, positions) if positional else None
    modified = ModifiedNetwork(d, n, tuple(runs), grid_positions)
    network = relax(modified, ramps, low, high)
    error = float(np.abs(network(x) - y).max())
    if not np.isfinite(error):
        raise ProvenformerError(
            f"inputs up to {np.abs(columns).max():.1e} overflow float64 on their way; make them smaller."
        )
    if error > LOST * (largest := float(np.abs(y).max())):
        raise ProvenformerError(
            f"outputs up to {largest:.1e} of inputs up to {np.abs(columns).max():.1e} come out {error:.1e} off (limit "
            f"{LOST * largest:.1e}); scale both to moderate numbers."
        )
    certificate = Certificate(
        error, {"rounding": error}, "rigorous", None, "data", BASIS, float(ID_RAMP), tuple(low.tolist()),
        tuple(high.tolist()), {"pairs": count, "pairs_sha256": pairs_digest(x, y), "tokens": len(tokens), **facts},
    )  # fmt: skip
    return Memorized(x, y, modified, network, certificate)


def _positions(x: FloatArray) -> FloatArray:
    """(d, n): what is added at every position, so that tokens at different ones differ."""
    d, n = x.shape[1:]
    reach = float(x.max()) - float(x.min())
    spacing = max(reach + 1.0, reach * (1 + FURTHER))
    if not np.isfinite(spacing * n):
        raise ProvenformerError(f"inputs reach from {x.min():.1e} to {x.max():.1e}, too far for float64; scale them.")
    return np.broadcast_to(np.arange(n) * spacing, (d, n))


def _table(
    tokens: FloatArray, contexts: Any, results: FloatArray, seed: int
) -> tuple[list[Run], dict[str, Fraction], dict[str, Any]]:
    """The runs that answer contexts (count, n) of indices of tokens with results (count, n, d); ramps; facts about ids."""
    d = tokens.shape[1]
    direction, reads, width = _reading_direction(tokens, seed)
    smallest = int(np.abs(reads).max()) + 4
    owners, first = np.unique(contexts.ravel(), return_index=True)
    own = results.reshape(-1, d)[first]  # by token, in the order of `tokens`
    e1 = tuple(unit(0, d))
    repeated = contexts.size > len(tokens)
    if repeated and _same(own[np.searchsorted(owners, contexts)], results, results):  # a token's code is its id
        code = np.arange(smallest, smallest + len(tokens))
        sums_run: list[Run] = []
        q, answers, lowest, reading = code, own, smallest, tuple(-v for v in e1)
    else:
        codes = _draw_codes(contexts, len(tokens), smallest, seed)
        code, sums_run = codes.codes[0], [sums.sum_attention(e1, codes)]
        q, first = np.unique(codes.context_ids(contexts).ravel(), return_index=True)
        answers, lowest, reading = results.reshape(-1, d)[first], codes.id_low, e1
    _require_resolution(reads, width, int(code.max()))
    scale = values.output_scale(e1, answers, Fraction(lowest), Fraction(1))
    scaled = answers / scale
    targets_in = np.zeros(scaled.shape, dtype=q.dtype)
    targets_in[:, 0] = q * reading[0]
    runs: list[Run] = [
        _recode_tokens(tokens, direction, reads, width, code),
        _snap(d, code),
        *sums_run,
        values.value_bumps(reading, q, targets_in, scaled, Fraction(1)),
        *values.rescale_output(scaled, scale),
    ]
    return runs, {RECODE: width / 4}, {"id_bits": int(q.max()).bit_length()}


def _constant(largest: float, value: FloatArray) -> list[Run]:
    """Every column within `largest` becomes `value`, a layer per row: x less x, plus the value."""
    reach, d = Fraction(largest), len(value)
    flat = (Fraction(0), reach)
    minus = ThreePiece(-reach, -reach, (flat, flat, (Fraction(-1), Fraction(0))))
    runs: list[Run] = []
    for row in range(d):
        e = ExactArray.of([unit(row, d)])
        shift = ExactArray(np.zeros((1, d), dtype=np.int64), 1, np.where(np.arange(d) == row, value, 0.0)[None])
        runs.append(FeedForward(VALUES, e, ExactArray.of([0]), e, minus, shift))
    return runs


def _same(first: FloatArray, second: FloatArray, all_outputs: FloatArray) -> bool:
    """Whether outputs are equal up to rounding."""
    return not _differ(first, second, all_outputs).any()


def _differ(first: FloatArray, second: FloatArray, all_outputs: FloatArray) -> Any:
    """Where outputs differ by more than rounding. What is taken for rounding is still part of the certified error."""
    return np.abs(first - second) > SAME_OUTPUT * np.abs(all_outputs).max(initial=0.0)


def _require_pairs(inputs: Any, outputs: Any) -> tuple[FloatArray, FloatArray]:
    try:
        x, y = (real_numbers(v) for v in (inputs, outputs))
    except (TypeError, ValueError, OverflowError) as error:
        raise ProvenformerError(f"inputs and outputs must be arrays of numbers ({error}).") from error
    if x.ndim != 3 or x.shape != y.shape or x.shape[0] < 1 or x.shape[1] < 1 or x.shape[2] < 2:
        raise ProvenformerError(
            f"inputs {x.shape} and outputs {y.shape} must both have shape (count >= 1, token_dim, seq_len >= 2)."
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ProvenformerError("inputs or outputs have an entry that is not finite; give real numbers.")
    return x, y


def _consistent(contexts: Any, results: FloatArray, positional: bool) -> Any:
    """One index per different context; two pairs that contradict each other are named."""
    order = np.argsort(contexts, axis=1, kind="stable")
    bags = np.take_along_axis(contexts, order, axis=1)
    sorted_results = np.take_along_axis(results, order[..., None], axis=1)
    clash = (np.diff(bags, axis=1) == 0) & _differ(sorted_results[:, 1:], sorted_results[:, :-1], results).any(axis=2)
    if clash.any():
        i = int(np.argwhere(clash)[0][0])
        raise ProvenformerError(
            f"pair {i} gives two equal tokens different outputs; an equivariant network cannot: use positional=True."
        )
    _, first, group = np.unique(bags, axis=0, return_index=True, return_inverse=True)
    wrong = _differ(sorted_results, sorted_results[first[group.ravel()]], results).any(axis=(1, 2))
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        j = int(first[group.ravel()[i]])
        what, remedy = (" up to permutation", " or use positional=True") if not positional else ("", "")
        raise ProvenformerError(
            f"pairs {min(i, j)} and {max(i, j)} have the same input{what} but different outputs; remove one{remedy}."
        )
    return np.sort(first)


def _reading_direction(tokens: FloatArray, seed: int) -> tuple[tuple[int, ...], FloatArray, Fraction]:
    """A direction in which all tokens are apart, what each reads there, and a window width (a power of two)."""
    count, d = tokens.shape
    rng = np.random.default_rng(seed)
    best: tuple[float, tuple[int, ...]] = (0.0, (1,) * d)
    drawn: list[list[int]] = rng.integers(1, 64, size=(32, d)).tolist()
    tries = [[1]] if d == 1 else drawn
    for direction in tries:
        reads = np.sort(tokens @ np.array(direction, dtype=np.float64))
        gap = float(np.diff(reads).min()) if count > 1 else 1.0
        if gap / sum(direction) > best[0]:
            best = (gap / sum(direction), tuple(direction))
    chosen = best[1]
    reads = tokens @ np.array(chosen, dtype=np.float64)
    gap = best[0] * sum(chosen)
    if not gap > SMALLEST_GAP * max(1.0, float(np.abs(reads).max())):
        raise ProvenformerError(
            f"two different tokens are only {best[0]:.1e} apart along every direction tried (limit {SMALLEST_GAP:.1e} of "
            "their size); round the inputs or merge such tokens."
        )
    width = Fraction(2.0 ** np.floor(np.log2(gap))) / 2
    return chosen, reads, width


def _require_resolution(reads: FloatArray, width: Fraction, largest_code: int) -> None:
    """Recoding multiplies the rounding of a read by code / ramp; what is left must snap to the right whole number."""
    error = 8 * ROUND * max(1.0, float(np.abs(reads).max())) * largest_code / float(width / 4)
    if error > 1 / 8:
        raise ProvenformerError(
            f"tokens are so close (window {float(width):.1e}) that float64 recodes them with an error of {error:.2g} "
            "(limit 0.125); round the inputs, use fewer pairs or more separated tokens."
        )


def _draw_codes(contexts: Any, tokens: int, smallest: int, seed: int) -> sums.TokenCodes:
    """Codes from `smallest` on and a gain for which all ids of the given contexts differ, as small as a few tries find.

    A recoded token reads at most -smallest, which is below every window.
    """
    rng = np.random.default_rng(seed)
    n = contexts.shape[1]
    bags = np.unique(np.sort(contexts, axis=1), axis=0)
    pairs = np.array([len(set(bag)) for bag in bags.tolist()]).sum()
    size = max(8, 2 * tokens)
    require_float64((2 * n * smallest).bit_length(), " or smaller inputs")  # no id of these codes is smaller
    while True:
        for gain in (2, 16, 128, 1024, size):
            for _ in range(4):
                drawn = rng.choice(size, size=tokens, replace=False) + smallest
                codes = sums.TokenCodes(np.zeros((1, tokens)), np.zeros((1, tokens, 1)), drawn[None], int(gain), n)
                if len(np.unique(codes.context_ids(bags))) == pairs and codes.id_low > 0:
                    return codes
        size *= 4
        require_float64(((size + smallest) * 1024 * n).bit_length())


def _recode_tokens(
    tokens: FloatArray, direction: tuple[int, ...], reads: FloatArray, width: Fraction, codes: Any
) -> FeedForward:
    """One bump per token, downwards: the column becomes (-code, 0, .., 0) up to rounding."""
    order = np.argsort(-reads)
    change = np.zeros(tokens.shape, dtype=np.int64)
    change[:, 0] = -codes
    return FeedForward(
        RECODE,
        ExactArray.repeat(list(direction), len(reads)),
        ExactArray(np.zeros(len(reads), dtype=np.int64), 1, -reads[order]),
        ExactArray(change[order], 1, -tokens[order]),
        ThreePiece.window(-width / 2, width / 2, intercept=1),
    )


def _snap(token_dim: int, codes: Any) -> FeedForward:
    """One bump per code, downwards: the first row goes to the whole number it is close to."""
    e1 = ExactArray.repeat(unit(0, token_dim), len(codes))
    half = Fraction(1, 2)
    return FeedForward("snap", e1, ExactArray(np.sort(codes)), e1, ThreePiece.window(-half, half, slope=-1))

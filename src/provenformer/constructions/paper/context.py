"""Step 2b, contextual mapping by hardmax attention (Lemma 6 for Theorem 2, Appendix C.2 for Theorem 3).

All ids here are integers in units of delta. The sweep visits every id l once and applies the selective shift
X + gain * Psi(X; l - 1/2, l + 1/2), which adds gain * (max id - min id) to the columns whose id is l; then one layer adds
final_gain * max id to every column. For ids l_1 < .. < l_n the sweep gives

    s_1 = l_1 + gain (l_n - l_1),    s_j = l_j + gain (s_(j-1) - l_j),    q_j = s_j + final_gain s_n.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from provenformer.base.exact import Array, ExactArray, integer_dtype
from provenformer.constructions.paper.quantize import marker, unit
from provenformer.functions.grid import Grid
from provenformer.networks.modified import Attention
from provenformer.networks.stages import CONTEXT


@dataclass(frozen=True)
class Sweep:
    """The selective shifts of one construction: which ids, which gains."""

    grid: Grid
    positional: bool = False
    literal: bool = False  # Appendix C exactly as printed (see `gain`)

    @cached_property
    def column_offsets(self) -> tuple[int, ...]:
        """Id of the grid token 0 in each column: s_j = (j - 1)(1 + N + .. + N^(d-1)) with positions (in units of delta)."""
        if not self.positional:
            return (0,) * self.grid.seq_len
        step = self.grid.cells_per_axis * sum(self.grid.id_vector)
        return tuple(j * step for j in range(self.grid.seq_len))

    @cached_property
    def gain(self) -> int:
        """N^d. Departure: N + 1 with positions for d = 1, n = 2.

        There L = (1 - delta, 1) would land on 2 - delta, inside a later window, and be shifted twice (our finding 3).
        With N + 1 it lands on 2, past every window; the digits argument of Lemma 10 holds for any gain >= N^d.
        """
        repair = self.positional and not self.literal and (self.grid.token_dim, self.grid.seq_len) == (1, 2)
        return int(self.grid.column_count + repair)

    @cached_property
    def final_gain(self) -> int:
        """N^((n+1)d), with positions n N^((n+1)d+1)."""
        power = int(self.grid.column_count ** (self.grid.seq_len + 1))
        return self.grid.seq_len * power * self.grid.cells_per_axis if self.positional else power

    @cached_property
    def id_low(self) -> int:
        """t_l: no entry of q is below it (without positions the paper's delta^(-2nd+1) (K - 1))."""
        k, n = self.grid.column_count, self.grid.seq_len
        if not self.positional:
            return int(k ** (2 * n) * (k - 1))
        # Smallest s_n: the digits argument gives s_n >= (gain^n - gain^(n-1)) (l_n - l_1), as in Lemma 10.
        closest = self.column_offsets[-1] - (k - 1)
        return int(self.final_gain * (self.gain**n - self.gain ** (n - 1)) * closest)

    @cached_property
    def id_high(self) -> int:
        """t_r: every entry of q is below it (without positions the paper's delta^(-(2n+1)d+1) (K - 1))."""
        k, n = self.grid.column_count, self.grid.seq_len
        if not self.positional:
            return int(k ** (2 * n + 1) * (k - 1))
        top = self.column_offsets[-1] + k - 1
        return int((self.final_gain + 1) * ((self.gain**n + 1) * top) + 1)

    @cached_property
    def entry_bound(self) -> int:
        """M of Lemma 7 (in units of delta): no entry of g_c(L), L in the extended grid, is larger in absolute value.

        A column is shifted at most once, so there are at most n effective shifts, and each multiplies the largest |id|
        by at most 1 + 2 gain; the last layer by 1 + final_gain. Entries outside the first row do not change.
        """
        start = -marker(self.grid) * self.grid.cells_per_axis * sum(self.grid.id_vector)
        return int(start * (1 + 2 * self.gain) ** self.grid.seq_len * (1 + self.final_gain) + start)

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """The ids that the sweep visits, in its order."""
        tokens = range(self.grid.column_count)
        return tuple(sorted({start + i for start in self.column_offsets for i in tokens}))

    renamings = ()

    def code(self, token: int, column: int) -> None:
        """Tokens keep their ids."""

    def attention_in_words(self) -> list[str]:
        """A sentence for every selective shift, and one for the last layer."""
        what = f"there add {self.gain} x (largest id - smallest id)."
        last = f"Last shift: add {self.final_gain:,} times the largest id to every token."
        return [*(f"Selective shift at id {window:g}: {what}" for window in self.windows), last]

    @property
    def id_bits(self) -> int:
        """Bits of the largest id that carries a value."""
        return self.id_high.bit_length()

    def ids(self, contexts: Array) -> Array:
        """Column ids of contexts (count, n) given as grid ids per column, increasing along each row."""
        dtype = integer_dtype(self.id_high * 4)
        return contexts.astype(dtype) + np.array(self.column_offsets, dtype=dtype)

    def shifted(self, ids: Array) -> Array:
        """s_1 .. s_n after the sweep, from increasing ids (count, n); closed form, not the network."""
        out = [ids[:, 0] + self.gain * (ids[:, -1] - ids[:, 0])]
        for j in range(1, ids.shape[1]):
            out.append(ids[:, j] + self.gain * (out[-1] - ids[:, j]))
        return np.stack(out, axis=1)

    def context_ids(self, ids: Array) -> Array:
        """q_1 .. q_n, from increasing ids (count, n)."""
        shifted = self.shifted(ids)
        return np.asarray(shifted + self.final_gain * shifted[:, -1:])

    def layers(self, unit_width: Fraction) -> list[Attention]:
        """The sweep (two heads) and the final shift (one head, the second switched off by W_O = 0)."""
        d, windows = self.grid.token_dim, self.windows
        u = [list(self.grid.id_vector)] * 2
        e1 = unit(0, d)
        half = unit_width / 2
        bias: Array = np.array([[1 - 2 * w, -1 - 2 * w] for w in windows], dtype=integer_dtype(4 * windows[-1] + 4))
        sweep = Attention(
            CONTEXT,
            W_O=ExactArray.repeat([[self.gain * c for c in e1], [-self.gain * c for c in e1]], len(windows)),
            W_V=ExactArray.repeat(u, len(windows)),
            W_K=ExactArray.repeat(u, len(windows)),
            W_Q=ExactArray.repeat(u, len(windows)),
            b_Q=ExactArray(bias * half.numerator, half.denominator),
        )
        zero = [0] * d
        last = Attention(
            CONTEXT,
            W_O=ExactArray.of([[[self.final_gain * c for c in e1], zero]]),
            W_V=ExactArray.of([u]),
            W_K=ExactArray.of([u]),
            W_Q=ExactArray.of([u]),
            b_Q=ExactArray.of([[Fraction(0), Fraction(0)]]),
        )
        return [sweep, last]

"""B_n sets: integers of which all sums of n, repetition allowed, are different. The sum construction names tokens so.

- Bose-Chowla: for a prime q >= K and a primitive element x of GF(q^n), the numbers log_x(x + a), a in GF(q), are a B_n
  set below q^n: a coincidence of two sums is a polynomial of degree < n with root x, hence 0.
- Greedy: take the next integer that keeps the property. Smaller for small K and n; costs about C(K+n-1, n) sums.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import comb

import numpy as np
from flint import fmpz, nmod_poly

from provenformer.base.errors import ProvenformerError

GREEDY_LIMIT = 1_000  # sums; beyond, the greedy search costs more time than its smaller codes are worth
GREEDY_ORDER = 64
SEARCHED_BITS = 256  # the next prime is found in milliseconds
FIELD_LIMIT = 2**27  # elements of GF(q^n) that are enumerated for the logarithms


@lru_cache(maxsize=64)
def bn_codes(size: int, order: int) -> tuple[int, ...]:
    """`size` positive integers, increasing, all sums of `order` of them different: the smaller of the two sets."""
    greedy = greedy_codes(size, order) if greedy_is_cheap(size, order) else None
    prime = next_prime(size)
    if greedy is not None and (greedy[-1] <= prime**order // 2 or prime**order > FIELD_LIMIT):
        return greedy
    algebraic = bose_chowla_codes(size, order)
    return algebraic if greedy is None or algebraic[-1] < greedy[-1] else greedy


def greedy_is_cheap(size: int, order: int) -> bool:
    """Whether the greedy search takes a fraction of a second."""
    # The number of sums is at least `size`, which may be too long to count with.
    return order <= GREEDY_ORDER and size <= GREEDY_LIMIT and comb(size + order - 1, order) <= GREEDY_LIMIT


def greedy_codes(size: int, order: int) -> tuple[int, ...]:
    """The lexicographically first B_n set of positive integers (Mian-Chowla for n = 2)."""
    chosen: list[int] = []
    sums: list[set[int]] = [{0}] + [set() for _ in range(order)]  # sums[i]: of i chosen codes
    candidate = 0
    while len(chosen) < size:
        candidate += 1
        # Sums of i codes that use the candidate at least once: the candidate plus any i - 1, itself included.
        fresh: list[list[int]] = [[]]
        for i in range(1, order + 1):
            fresh.append([candidate + s for s in sums[i - 1]] + [candidate + s for s in fresh[i - 1]])
        top = fresh[order]
        if len(set(top)) == len(top) and sums[order].isdisjoint(top):
            chosen.append(candidate)
            for known, new in zip(sums, fresh, strict=True):
                known.update(new)
    return tuple(chosen)


def bose_chowla_codes(size: int, order: int) -> tuple[int, ...]:
    """Bose-Chowla codes, rotated (logarithms live on a circle) and cut to the tightest `size` of the q."""
    q = next_prime(size)
    if q**order > FIELD_LIMIT:
        raise ProvenformerError(
            f"B_{order} codes for {size:,} tokens need the field of {q**order:,} elements (limit {FIELD_LIMIT:,}); "
            "use fewer cells per axis or tokens."
        )
    modulus = _primitive_polynomial(q, order)
    cycle = q**order - 1
    logs = np.sort(_logarithms_of_shifted_generator(q, order, modulus))
    # B_n sets modulo q^n - 1 may be rotated; start after the widest gap that leaves `size` codes.
    doubled = np.concatenate([logs, logs + cycle])
    spans = doubled[size - 1 : size - 1 + q] - doubled[:q]
    start = int(np.argmin(spans))
    return tuple(int(v) for v in doubled[start : start + size] - doubled[start] + 1)


def next_prime(at_least: int) -> int:
    """The smallest prime that is not below `at_least`."""
    candidate = fmpz(max(2, at_least))
    while not candidate.is_prime():
        candidate += 1
    return int(candidate)


def prime_from(at_least: int) -> int:
    """`next_prime`, or a number that is not below it where a search would take long.

    Dusart (2010, Proposition 6.8): for x >= 396,738 there is a prime in (x, x (1 + 1 / (25 ln^2 x))].
    """
    bits = at_least.bit_length()
    if bits <= SEARCHED_BITS:
        return next_prime(at_least)
    return at_least + at_least // (12 * (bits - 1) ** 2) + 1  # 25 ln^2 x >= 25 (bits - 1)^2 ln^2 2 > 12 (bits - 1)^2


def _primitive_polynomial(q: int, degree: int) -> nmod_poly:
    """The first monic polynomial modulo which x has order q^degree - 1 (so it is irreducible and x primitive)."""
    order = q**degree - 1
    exponents = [order // int(prime) for prime, _ in fmpz(order).factor()]
    x, one = nmod_poly([0, 1], q), nmod_poly([1], q)
    for low in product(range(q), repeat=degree):
        if low[0] == 0:
            continue
        f = nmod_poly([*low, 1], q)
        if degree == 1:
            x_mod = x % f
            if all(pow(x_mod, e, f) != one for e in exponents) and pow(x_mod, order, f) == one:
                return f
        elif pow(x, order, f) == one and all(pow(x, e, f) != one for e in exponents):
            return f
    raise ProvenformerError(f"GF({q}) has no primitive polynomial of degree {degree}; q must be prime.")


def _logarithms_of_shifted_generator(q: int, degree: int, modulus: nmod_poly) -> np.ndarray:
    """All k with x^k = x + a, a in GF(q): powers of x in blocks, one matrix product per block."""
    companion = np.zeros((degree, degree), dtype=np.int64)  # row vectors: coefficients of p -> coefficients of x p
    companion[np.arange(degree - 1), np.arange(1, degree)] = 1
    companion[-1] = [(-int(modulus[i])) % q for i in range(degree)]
    block = np.zeros((1, degree), dtype=np.int64)
    block[0, 0] = 1  # x^0
    step, total = companion, q**degree - 1
    while len(block) < min(total, 1 << 16):  # double the block: x^0 .. x^(2b-1)
        block = np.concatenate([block, block @ step % q])
        step = step @ step % q
    wanted = np.zeros(degree, dtype=np.int64)
    wanted[1 % degree] = 1
    found: list[np.ndarray] = []
    for start in range(0, total, len(block)):
        hits = np.flatnonzero((block[:, 1:] == wanted[1:]).all(axis=1)) + start
        found.append(hits[hits < total])
        block = block @ step % q
    return np.concatenate(found)

"""What Section 6 says about the cheaper mixers, as checks that run: `provenformer bert claims`.

Each function tests one statement on the real mixer, with numbers, and says what it found. Where the statement has a
limit, the check shows the limit too.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers import Average, BProj, Mixer, SepConv
from provenformer.constructions.sum.codes import greedy_codes


@dataclass(frozen=True)
class Claim:
    """A statement, whether the check bears it out, and on what evidence."""

    statement: str
    holds: bool
    evidence: str


def check_all() -> list[Claim]:
    """Every check at its default size."""
    return [
        bproj_spreads_one_token(),
        bproj_fails_on_chosen_sequences(),
        sepconv_needs_layers(),
        average_is_not_contextual(),
        average_of_codes_is_contextual(),
    ]


# --- BProj: a Gaussian W_P turns a sparse difference into a dense one ---


def bproj_spreads_one_token(tokens: int = 64, pairs: int = 1000, resolution: float = 1e-9, seed: int = 0) -> Claim:
    """Pairs fixed first, W_P drawn afterwards: a difference in one token becomes a different number in every token."""
    generator = torch.Generator().manual_seed(seed)
    one = torch.randn(pairs, tokens, 1, dtype=torch.float64, generator=generator)
    changed = torch.randint(tokens, (pairs,), generator=generator)
    other = one.clone()
    other[torch.arange(pairs), changed] += 1  # differ by exactly 1, so the gap of the bound is known

    mixer = gaussian_bproj(tokens, seed + 1)
    with torch.no_grad():
        difference = (mixer(other) - mixer(one)).squeeze(-1)  # (pairs, tokens) = W_P[changed, :]
    smallest = difference.abs().min().item()
    closest = difference.sort(dim=1).values.diff(dim=1).min().item()
    bound = bproj_failure_bound(pairs, tokens, gap=1.0, resolution=resolution)
    return Claim(
        "BProj with Gaussian W_P: inputs that differ in one token give outputs that differ in every token, distinctly",
        smallest > resolution and closest > resolution,
        f"{pairs} pairs of {tokens} tokens: smallest change {smallest:.1e}, closest two changes {closest:.1e}; "
        f"chance that some change is below {resolution:g}: at most {bound:.1e}",
    )


def bproj_failure_bound(pairs: int, tokens: int, gap: float, resolution: float) -> float:
    """Chance that any of `pairs` fixed pairs, `gap` apart, comes closer than `resolution` in any token.

    One changed number is Gaussian with deviation gap / sqrt(tokens), its density at most 1 / (deviation sqrt(2 pi)),
    so it falls into [-resolution, resolution] with chance at most resolution sqrt(2 / pi) / deviation. Add up over
    pairs and tokens. The sum grows with the number of pairs: the promise is for a finite set fixed before W_P is drawn.
    """
    return pairs * tokens * resolution * math.sqrt(2 / math.pi) * math.sqrt(tokens) / gap


def bproj_fails_on_chosen_sequences(tokens: int = 64, token: int = 0, seed: int = 0) -> Claim:
    """The limit of the claim: after W_P is known, two sequences can be chosen that one token cannot tell apart."""
    mixer = gaussian_bproj(tokens, seed)
    one = torch.zeros(1, tokens, 1, dtype=torch.float64)
    other = one.clone()
    weight = mixer.position_weight.detach()
    # W_P[1, j] u + W_P[2, j] v = 0: two other tokens change, token j hears nothing.
    first, second = [i for i in range(tokens) if i != token][:2]
    other[0, first, 0], other[0, second, 0] = weight[second, token], -weight[first, token]
    with torch.no_grad():
        difference = (mixer(other) - mixer(one)).abs()[0, :, 0]
    return Claim(
        "its limit: for a W_P already drawn there are sequences that a token cannot tell apart (a fixed set only)",
        difference[token].item() < 1e-15 < difference.max().item(),
        f"tokens {first} and {second} changed by {other.abs().max().item():.2f} at most; "
        f"token {token} changes by {difference[token].item():.0e}, another by {difference.max().item():.2f}",
    )


def gaussian_bproj(tokens: int, seed: int) -> BProj:
    """A scalar BProj in float64 with W_P drawn from this seed."""
    mixer = BProj(1, size=tokens).double()
    with torch.no_grad():
        noise = torch.randn(tokens, tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        mixer.position_weight.copy_(noise / math.sqrt(tokens))
    return mixer


# --- SepConv: how many layers until everything is seen ---


def layers_until_one_token_sees_all(tokens: int, taps: int) -> int:
    """ceil((n-1)/(k-1)): below it no token sees the whole sequence, since a layer widens the view by k-1."""
    _check_view(tokens, taps, least_taps=2)
    return math.ceil((tokens - 1) / (taps - 1))


def layers_until_every_token_sees_all(tokens: int, taps: int) -> int:
    """ceil((n-1)/floor((k-1)/2)): the ends of the sequence look one way only, with the shorter half of the filter."""
    _check_view(tokens, taps, least_taps=3)
    return math.ceil((tokens - 1) / ((taps - 1) // 2))


def _check_view(tokens: int, taps: int, least_taps: int) -> None:
    if tokens < 1 or taps < least_taps:
        raise ProvenformerError(
            f"tokens={tokens}, taps={taps}: no number of layers sees everything; use tokens >= 1, taps >= {least_taps}"
        )


def sepconv_view(tokens: int, taps: int, layers: int) -> Tensor:
    """(tokens, tokens) of bool, measured: does output j of a stack of SepConv layers depend on input i?"""
    stack = [SepConv(1, filters=1, filter_length=taps).double() for _ in range(layers)]
    with torch.no_grad():
        for layer in stack:  # a positive linear part, so that no dependence cancels
            layer.filters.fill_(1 / taps)
            layer.gate.weight.fill_(1)
            layer.gate.bias.zero_()
    start = torch.ones(1, tokens, 1, dtype=torch.float64)
    jacobian: Tensor = torch.autograd.functional.jacobian(torch.nn.Sequential(*stack), start)
    return jacobian.reshape(tokens, tokens) != 0


def sepconv_needs_layers(tokens: int = 33, taps: int = 8) -> Claim:
    """The first depths at which one token, and every token, depends on every input: measured against the formulas."""
    least, enough = layers_until_one_token_sees_all(tokens, taps), layers_until_every_token_sees_all(tokens, taps)
    views = {depth: sepconv_view(tokens, taps, depth) for depth in range(1, enough + 1)}
    some = next((depth for depth, view in views.items() if view.all(dim=1).any()), None)
    every = next((depth for depth, view in views.items() if view.all()), None)
    return Claim(
        "SepConv needs ceil((n-1)/(k-1)) layers before any token sees everything, "
        "and ceil((n-1)/floor((k-1)/2)) before every token does",
        (some, every) == (least, enough),
        f"n={tokens}, k={taps}: measured {some} and {every}, formulas {least} and {enough}; "
        f"BERT_BASE, n=512, k=128: {layers_until_one_token_sees_all(512, 128)} and "
        f"{layers_until_every_token_sees_all(512, 128)} of its 12 layers",
    )


# --- Average attention: contextual only after recoding ---

Sequence = tuple[int, ...]


def find_collision(mixer: Mixer, sequences: list[Sequence], codes: list[int]) -> tuple[Sequence, Sequence] | None:
    """Two sequences with different contents in which one token gets the same answer, or None if the map is contextual.

    Token l enters as the number codes[l]. A token's answer is the pair (its code, what the mixer gave it), which is all
    that the skip connection and W_O can work with. As in Lemma 6, an equivariant map need only tell multisets apart.
    """
    x = torch.tensor([[codes[token] for token in sequence] for sequence in sequences], dtype=torch.float64)
    with torch.no_grad():
        mixed = mixer(x.unsqueeze(-1)).squeeze(-1)
    seen: dict[tuple[int, float], Sequence] = {}
    for sequence, answers in zip(sequences, mixed.tolist(), strict=True):
        for token, answer in zip(sequence, answers, strict=True):
            earlier = seen.setdefault((token, answer), sequence)
            if sorted(earlier) != sorted(sequence):
                return earlier, sequence
    return None


def average_is_not_contextual() -> Claim:
    """The counter-example: 1 among (1, 0, 2) and 1 among (1, 1, 1) receive the same mean."""
    collision = find_collision(Average(1), [(1, 0, 2), (1, 1, 1)], codes=[0, 1, 2])
    return Claim(
        "average attention alone is not a contextual mapping",
        collision is not None,
        f"token 1 gets the mean 1 in both of {collision}" if collision else "no collision found",
    )


def average_of_codes_is_contextual(alphabet: int = 5, tokens: int = 4) -> Claim:
    """Recoded by a B_n set the mean names the multiset (the compiler's sum construction); all sequences are tried."""
    sequences = list(itertools.product(range(alphabet), repeat=tokens))
    codes = list(greedy_codes(alphabet, tokens))
    plain = find_collision(Average(1), sequences, codes=list(range(alphabet)))
    recoded = find_collision(Average(1), sequences, codes=codes)
    return Claim(
        "recoded by a B_n set (all sums of n codes distinct) average attention is a contextual mapping",
        recoded is None and plain is not None,
        f"all {len(sequences)} sequences of {tokens} tokens out of {alphabet}: codes {codes} give "
        f"{'no collision' if recoded is None else recoded}, codes 0..{alphabet - 1} collide at {plain}",
    )

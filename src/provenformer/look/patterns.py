"""What heads look at on an input: the patterns that are worth a picture, small enough for one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.nodes import repeats
from provenformer.base.arrays import FloatArray
from provenformer.look.circuit import CircuitSubject
from provenformer.networks.inside import patterns

FINEST = 64  # queries and keys of a pattern that is drawn; longer sequences are averaged
MOST_PATTERNS = 12


@dataclass(frozen=True)
class Pattern:
    """What a head looks at for the sequence that is followed: (queries, keys), averaged to at most FINEST each."""

    block: int
    head: int
    makes: tuple[str, ...]  # names of the nodes, or of channels
    weights: FloatArray
    largest: float  # before averaging
    looks: str = ""  # what the head looks at, in words
    tokens: tuple[str, ...] = ()  # the sequence, where tokens have names and each has a row and a column


def shown_patterns(subject: CircuitSubject, sequence: FloatArray, finest: int = FINEST) -> list[Pattern]:
    """At most MOST_PATTERNS for a sequence (d, n); blocks that repeat what the one before them does are left out."""
    folded = () if subject.circuit is None else repeats(subject.circuit.nodes)
    hidden = {block for first, last in folded for block in range(first, last + 1)}
    found: list[Pattern] = []
    looks = {} if subject.circuit is None else subject.circuit.looks
    tokens = tuple(subject.in_words(sequence)) if subject.token_names and subject.seq_len <= finest else ()
    for b, weights in enumerate(patterns(subject.network, sequence)):
        for k, one in enumerate(weights if b not in hidden else []):
            if len(found) < MOST_PATTERNS:
                made, words = _makes(subject, b, k), looks.get((b, k), "")
                found.append(Pattern(b, k, made, averaged(one, finest), float(one.max()), words, tokens))
    return found


def _makes(subject: CircuitSubject, block: int, head: int) -> tuple[str, ...]:
    if subject.circuit is not None:
        made = [node.name for node in subject.nodes if node.block == block and head in node.heads]
        return tuple(made)
    written = np.flatnonzero(subject.network.circuit_blocks[block].heads[head].W_O.any(axis=1))
    return tuple(f"channel {c}" for c in written)


def averaged(weights: FloatArray, finest: int = FINEST) -> FloatArray:
    """At most `finest` rows and columns: means over queries, sums over keys, so that rows still add up to 1."""
    n = len(weights)
    if n <= finest:
        return weights
    starts = np.arange(finest) * n // finest
    sums = np.add.reduceat(np.add.reduceat(weights, starts, axis=0), starts, axis=1)
    return np.asarray(sums / np.diff([*starts, n])[:, None])

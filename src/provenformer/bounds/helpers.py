"""Parts of Transformers as functions of plain arrays, and of all arrays that stand for them: attention and normalisation.

Features are axis -2 and tokens axis -1, as in a target.
"""

from __future__ import annotations

from typing import Any

import numpy

from provenformer.bounds.numpy_calls import softmax

np: Any = numpy  # numpy dispatches its functions to abstract arrays; its type stubs know only arrays
UNSEEN = -1e9  # instead of -inf, of which no differences can be taken


def attend(queries: Any, keys: Any, values: Any, mask: Any = None, scale: float | None = None) -> Any:
    """sum over k of softmax_k(scale <queries_j, keys_k> + mask[j, k]) values_k, for every token j.

    queries, keys (.., m, n), values (.., v, n) -> (.., v, n). scale: 1 / sqrt(m) unless given. mask: added to the scores (n, n),
    -np.inf where token j may not see token k.
    """
    size = numpy.shape(queries)[-2]
    scores = np.swapaxes(queries, -1, -2) @ keys * (1 / numpy.sqrt(size) if scale is None else scale)  # (.., j, k)
    if mask is not None:
        scores = scores + numpy.maximum(mask, UNSEEN)
    weights = softmax(scores, axis=-1)
    return values @ np.swapaxes(weights, -1, -2)


def normalize(x: Any, axis: int = -2, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(variance + eps) along an axis: layer norm over the features of every token, unless told otherwise."""
    centred = x - np.mean(x, axis=axis, keepdims=True)
    return centred / np.sqrt(np.mean(np.square(centred), axis=axis, keepdims=True) + eps)

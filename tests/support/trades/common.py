"""What everybody has in a file of helpers."""

from typing import Any

import numpy as np


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def softmax(z: Any, axis: int = -1) -> Any:
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

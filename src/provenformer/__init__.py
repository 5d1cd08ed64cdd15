"""provenformer: Transformers constructed from a function, with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from provenformer.base.errors import ProvenformerError
from provenformer.base.extras import extra
from provenformer.base.version import __version__
from provenformer.bounds.helpers import attend, normalize
from provenformer.bounds.numpy_calls import logsumexp, softmax
from provenformer.certificates.certificate import Certificate
from provenformer.checker.verify import Report, verify
from provenformer.compiler.compile import compile
from provenformer.compiler.loading import load, load_disguised
from provenformer.compiler.memorize import Memorized, memorize
from provenformer.compiler.planning import plan
from provenformer.compiler.tables import Compiled
from provenformer.constructions.lemmas import is_contextual_mapping
from provenformer.constructions.plan import CircuitPlan, Plan
from provenformer.functions import programs, rasp, targets
from provenformer.functions.distance import Distance, distance
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram
from provenformer.storage import Saved

if TYPE_CHECKING:
    from torch import nn

    from provenformer.compiler.circuit import CompiledCircuit
    from provenformer.compiler.tokens import CompiledTokens, compile_tokens

__all__ = [
    "Certificate",
    "CircuitPlan",
    "Compiled",
    "CompiledCircuit",
    "CompiledTokens",
    "Distance",
    "Grid",
    "Memorized",
    "Plan",
    "ProvenformerError",
    "Report",
    "Saved",
    "Target",
    "TokenProgram",
    "__version__",
    "attend",
    "compile",
    "compile_tokens",
    "distance",
    "from_pretrained",
    "is_contextual_mapping",
    "load",
    "load_disguised",
    "logsumexp",
    "memorize",
    "normalize",
    "plan",
    "programs",
    "rasp",
    "softmax",
    "targets",
    "verify",
]


def from_pretrained(path: str | Path) -> nn.Module:
    """The torch module that `save_pretrained` wrote: config.json and model.safetensors. Needs the extra `torch`."""
    with extra("torch", "from_pretrained()"):
        from provenformer.networks.export.torch_module import CircuitBlocks  # noqa: PLC0415
    return CircuitBlocks.from_pretrained(path)


def __getattr__(name: str) -> Any:
    """Circuits are as large as the rest of the library, and loaded when they are needed."""
    if name == "CompiledCircuit":
        from provenformer.compiler.circuit import CompiledCircuit  # noqa: PLC0415

        return CompiledCircuit
    if name in ("CompiledTokens", "compile_tokens"):
        from provenformer.compiler import tokens  # noqa: PLC0415

        return getattr(tokens, name)
    raise AttributeError(f"module 'provenformer' has no attribute '{name}'")

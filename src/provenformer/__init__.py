"""provenformer: Transformers constructed from a function, with a certificate."""

from provenformer import targets
from provenformer.compiler import Compiled, compile  # noqa: A004
from provenformer.errors import ProvenformerError
from provenformer.grid import Grid
from provenformer.planning import Plan, plan
from provenformer.targets import Target

__all__ = ["Compiled", "Grid", "Plan", "ProvenformerError", "Target", "compile", "plan", "targets"]

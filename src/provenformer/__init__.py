"""provenformer: Transformers constructed from a function, with a certificate."""

from provenformer import targets
from provenformer.checks import is_contextual_mapping
from provenformer.compiler import Compiled, compile
from provenformer.errors import ProvenformerError
from provenformer.grid import Grid
from provenformer.planning import Plan, plan
from provenformer.targets import Target

__all__ = [
    "Compiled",
    "Grid",
    "Plan",
    "ProvenformerError",
    "Target",
    "compile",
    "is_contextual_mapping",
    "plan",
    "targets",
]

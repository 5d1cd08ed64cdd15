"""provenformer: Transformers constructed from a function, with a certificate."""

from provenformer import targets
from provenformer.certify import Certificate
from provenformer.checks import is_contextual_mapping
from provenformer.compiler import Compiled, compile
from provenformer.distance import Distance, distance
from provenformer.errors import ProvenformerError
from provenformer.finite import CompiledTokens, Memorized, compile_tokens, memorize
from provenformer.grid import Grid
from provenformer.planning import Plan, plan
from provenformer.storage import Saved, load
from provenformer.targets import Target
from provenformer.verification import Report, verify

__all__ = [
    "Certificate",
    "Compiled",
    "CompiledTokens",
    "Distance",
    "Grid",
    "Memorized",
    "Plan",
    "ProvenformerError",
    "Report",
    "Saved",
    "Target",
    "compile",
    "compile_tokens",
    "distance",
    "is_contextual_mapping",
    "load",
    "memorize",
    "plan",
    "targets",
    "verify",
]

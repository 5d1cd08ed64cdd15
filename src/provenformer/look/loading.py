"""From a folder to what is looked at."""

from __future__ import annotations

from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram
from provenformer.look.circuit import CircuitSubject
from provenformer.look.programs import ProgramSubject
from provenformer.look.subject import Subject
from provenformer.networks.circuit import CircuitNetwork
from provenformer.storage import load


def load_subject(path: str | Path, target: Target | TokenProgram | None = None) -> Subject | CircuitSubject:
    """A folder written by `compile`, `memorize` or `compile_tokens`; `target` is the function, where it is not a built-in one."""
    try:
        saved = load(path)
        tokens = saved.manifest["target"]["source"] == "program"
        if target is not None and tokens != isinstance(target, TokenProgram):
            kind = "made from a program on tokens" if tokens else "not made from a program on tokens"
            raise ProvenformerError(f"{path} was {kind}; give it a target of its own kind.")
        if tokens:
            return ProgramSubject.of_folder(saved, target if isinstance(target, TokenProgram) else None)
        function = target if isinstance(target, Target) else None
        if isinstance(saved.network, CircuitNetwork):
            return CircuitSubject.of_saved(saved, function)
        return Subject.of_saved(saved, function)
    except (KeyError, TypeError, IndexError) as error:
        raise ProvenformerError(f"{path} is not a valid network folder ({error!r}); save it again.") from error

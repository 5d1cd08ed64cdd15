"""From a folder to what is looked at."""

from __future__ import annotations

from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.functions.targets import Target
from provenformer.look.circuit import CircuitSubject
from provenformer.look.subject import Subject
from provenformer.networks.circuit import CircuitNetwork
from provenformer.storage import load


def load_subject(path: str | Path, target: Target | None = None) -> Subject | CircuitSubject:
    """A folder written by `compile` or `memorize`; `target` is the function, where the folder does not name a built-in one."""
    try:
        saved = load(path)
        if saved.manifest["target"]["source"] == "program":
            raise ProvenformerError(
                f"{path} is a program on tokens, which this does not show; print what its heads do: provenformer tokens."
            )
        if isinstance(saved.network, CircuitNetwork):
            return CircuitSubject.of_saved(saved, target)
        return Subject.of_saved(saved, target)
    except (KeyError, TypeError, IndexError) as error:
        raise ProvenformerError(f"{path} is not a valid network folder ({error!r}); save it again.") from error

"""load() and load_disguised(): what was saved, with what its kind offers."""

from __future__ import annotations

from pathlib import Path

from provenformer import storage
from provenformer.base.errors import BadFolder, ProvenformerError
from provenformer.base.extras import extra
from provenformer.functions.tokens import TokenProgram
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.disguise import DisguisedCircuit, DisguisedProgram
from provenformer.storage import Saved


def load(path: str | Path, check_hashes: bool = True, *, target: TokenProgram | None = None) -> Saved:
    """Read a folder. Any missing, altered or malformed part is a BadFolder, one clear line; nothing is imported or run.

    A program on tokens offers what `compile_tokens` gives (SavedProgram): called with tokens, `to_transformer_lens()`,
    `attention`, `states`; `circuit`, `hook_names` and `disguised()` need the program: `target`, where it is not of the library.
    """
    saved = storage.load(path, check_hashes)
    if saved.manifest["target"]["source"] != "program" or not isinstance(saved.network, CircuitNetwork):
        if target is not None:
            raise ProvenformerError(f"{path} was not made from a program on tokens; leave target out.")
        return saved
    from provenformer.compiler.programs import SavedProgram  # noqa: PLC0415  (as large as the rest of the library)

    return SavedProgram.of(saved, target)


def load_disguised(path: str | Path) -> DisguisedCircuit | DisguisedProgram:
    """What `save` of a disguised circuit or program wrote; its bounds are as stated there. Needs the extra `torch`."""
    with extra("torch", "load_disguised()"):
        from provenformer.networks.export.pretrained import read_pretrained  # noqa: PLC0415
    network = read_pretrained(path)[0]
    if not isinstance(network, DisguisedCircuit | DisguisedProgram):
        raise BadFolder(f"{path} holds a circuit that is not disguised; read it with pf.from_pretrained.")
    return network

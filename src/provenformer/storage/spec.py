"""How a manifest names its target, and how the target is found again. Nothing that a folder names is imported by itself."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any

from provenformer.base.errors import ProvenformerError, TargetError, one_line
from provenformer.functions import programs, targets
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram, stored_tokens

NAME_LIMIT = 40  # characters of a token's name


def target_spec(target: Target) -> dict[str, Any]:
    """How to find a target again: a built-in name, an import path, or nothing but its description."""
    spec = {
        "name": one_line(target.name),
        "token_dim": target.token_dim,
        "seq_len": target.seq_len,
        "equivariant": target.equivariant,
        "lipschitz": target.lipschitz,
        "support": [list(target.support[0]), list(target.support[1])],
        "vanishes_outside": target.vanishes_outside,
    }
    if target.vouched:
        spec["vouched"] = True
    if digest := source_digest(target):
        spec["source_sha256"] = digest
    if targets.is_built_in(target):
        return {**spec, "source": "built-in"}
    module, qualname = getattr(target.fn, "__module__", None), getattr(target.fn, "__qualname__", "<")
    if module and "<" not in qualname and module != "__main__":
        return {**spec, "source": "import", "import": f"{module}:{qualname}"}
    return {**spec, "source": "opaque"}


def program_spec(program: TokenProgram, vocab: Sequence[Any] | None = None) -> dict[str, Any]:
    """How to find a program on tokens again: a name of `provenformer.programs`, an import path, or its sizes alone.

    `vocab`: the tokens, where they are not numbered; and their names, for people, as far as a line shows them.
    """
    spec: dict[str, Any] = {
        "source": "program",
        "name": one_line(program.name),
        "vocab_size": program.vocab_size,
        "seq_len": program.seq_len,
    }
    names = [one_line(str(token))[:NAME_LIMIT] for token in vocab or ()]
    if names != list(map(str, range(len(names)))):
        spec["tokens"] = names
    if vocab is not None and tuple(vocab) != tuple(range(len(vocab))):
        spec["vocab"] = stored_tokens(vocab)
    if digest := source_digest(program):
        spec["source_sha256"] = digest
    module, qualname = getattr(program.fn, "__module__", None), getattr(program.fn, "__qualname__", "<")
    if not programs.is_built_in(program) and module and "<" not in qualname and module != "__main__":
        spec["import"] = f"{module}:{qualname}"
    return spec


def built_in_program(spec: dict[str, Any]) -> TokenProgram | None:
    """The program of `provenformer.programs` that a spec names, unless it names a function to import, or none of them."""
    name = spec["name"].removesuffix(programs.PADDED)
    if "import" in spec or name not in programs.names():
        return None
    return programs.get(name, spec["vocab_size"], spec["seq_len"], pad=name != spec["name"])


def source_digest(target: Target | TokenProgram) -> str | None:
    """sha256 of the function's source as Python finds it, without indentation and empty lines; None without a source.

    It tells one text from another: what the text refers to (globals, other functions) is not part of it.
    """
    fn = target.fn
    if isinstance(fn, partial):  # a built-in on another support: the formula is its first argument
        fn = fn.args[0] if fn.args else fn.func
    try:
        text = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError, IndentationError, SyntaxError):
        return None
    lines = [line.rstrip() for line in text.splitlines()]
    return hashlib.sha256("\n".join(line for line in lines if line).encode("utf-8", "replace")).hexdigest()


def built_in_target(spec: dict[str, Any]) -> Target:
    """The built-in target that a spec names; raises TargetError for a name that this version does not have."""
    support = (tuple(spec["support"][0]), tuple(spec["support"][1]))
    try:
        return targets.get(spec["name"], spec["token_dim"], spec["seq_len"], support)
    except ProvenformerError as error:
        raise TargetError(str(error)) from error


def described_target(spec: dict[str, Any], function: Any) -> Target:
    """A function, with what a spec says of it: sizes, box, equivariance, Lipschitz constant."""
    support = (tuple(spec["support"][0]), tuple(spec["support"][1]))
    return Target(
        function, spec["token_dim"], spec["seq_len"], spec["equivariant"], spec["lipschitz"], support, spec["name"],
        spec["vanishes_outside"], spec.get("vouched", False),
    )  # fmt: skip


def import_function(path: str, *, current_folder: bool = False) -> Any:
    """`my_module:my_function`; never evaluates a string. `current_folder`: also from there, after all installed modules."""
    module, _, name = path.partition(":")
    if current_folder and (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # the module's own code may raise anything
        reason = one_line(f"{type(error).__name__}: {error}")[:300]
        raise TargetError(
            f"cannot import '{one_line(path)}' ({reason}); give module:function on the Python path."
        ) from error
    if not callable(found):
        raise TargetError(f"'{one_line(path)}' is not a function; give module:function.")
    return found

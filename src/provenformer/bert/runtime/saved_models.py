"""Saved models: folders as transformers writes them, with the vocabulary beside the weights."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedConfig, PreTrainedModel

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.files import file_digest, write_json
from provenformer.bert.data.vocabulary import Vocabulary
from provenformer.bert.model.replacing import load_model
from provenformer.bert.settings import read_json, shown

WEIGHTS = "model.safetensors"
CHECKSUMS = "checksums.json"
CHECKED = ("config.json", WEIGHTS)
FLOATS = ("F16", "BF16", "F32", "F64")
AGAIN = "make it again"


def save_vocabulary(vocabulary: Vocabulary, folder: Path) -> None:
    """vocab.txt and what transformers' BertTokenizer needs to know of it."""
    vocabulary.save(folder / "vocab.txt")
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": vocabulary.lowercase,
            "vocabulary_fingerprint": vocabulary.fingerprint,
        },
    )


def save_checksums(folder: Path) -> None:
    """What `load_saved` compares the files with."""
    write_json(folder / CHECKSUMS, {name: file_digest(folder / name) for name in CHECKED})


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a saved model."""
    if not (folder / "vocab.txt").exists():
        raise ProvenformerError(f"{folder} holds no vocab.txt; name the folder `model` of a pre-training run")
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.exists() else {}
    lowercase = config.get("do_lower_case", True)
    if not isinstance(lowercase, bool):
        raise ProvenformerError(f"{path}: do_lower_case = {shown(lowercase)} must be true or false; correct it")
    vocabulary = Vocabulary.load(folder / "vocab.txt", lowercase)
    # Models saved by earlier versions, or by others, have none.
    if config.get("vocabulary_fingerprint", vocabulary.fingerprint) != vocabulary.fingerprint:
        remedy = "restore the file it was trained with"
        raise ProvenformerError(f"{folder / 'vocab.txt'} is not the vocabulary of the model beside it; {remedy}")
    return vocabulary


def load_saved(kind: Any, folder: Path, **overrides: Any) -> Any:
    """The model of a saved folder as `kind`, or its configuration; a head that the folder does not have is new.

    Everything below the head must be there, of numbers that are finite, and as it was saved. Models saved by earlier
    versions, or by others, have no checksums to compare with.
    """
    _compare(folder)
    if issubclass(kind, PreTrainedConfig):
        try:
            return kind.from_pretrained(folder, **overrides)
        # transformers reads config.json without checking it, so what is wrong there may show as anything.
        except Exception as error:
            reason = one_line(error)[:200] or type(error).__name__
            raise ProvenformerError(f"the model in {folder} cannot be loaded ({reason}); {AGAIN}") from None
    model = load_model(folder, kind, dtype=torch.float32, **overrides)
    _check_weights(folder, model)
    return model


def _compare(folder: Path) -> None:
    path = folder / CHECKSUMS
    recorded = read_json(path, AGAIN) if path.exists() else {}
    if path.exists() and (
        recorded.keys() != set(CHECKED) or not all(isinstance(one, str) for one in recorded.values())
    ):
        raise ProvenformerError(f"{path} must have a sha256 for {' and '.join(CHECKED)} and nothing else; {AGAIN}")
    for name, sha256 in recorded.items():
        if file_digest(folder / name) != sha256:
            raise ProvenformerError(f"{folder / name} is damaged: it does not match {CHECKSUMS}; {AGAIN}")


def _check_weights(folder: Path, model: PreTrainedModel) -> None:
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  (it is no mapping)
    counts = {"I64"}  # position ids, which stock checkpoints keep
    for name, dtype in types.items():
        if dtype not in FLOATS and not (name.endswith("position_ids") and dtype in counts):
            raise ProvenformerError(f"{folder / WEIGHTS}: {one_line(name)[:200]} is of type {dtype}, no float; {AGAIN}")
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise ProvenformerError(f"{folder / WEIGHTS}: {name} has numbers that are not finite; {AGAIN}")

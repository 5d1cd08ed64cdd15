"""Saved models: folders as transformers writes them, with the vocabulary beside the weights."""

from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.data.vocabulary import Vocabulary
from provenformer.bert.settings import read_json


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


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a saved model."""
    if not (folder / "vocab.txt").exists():
        raise ProvenformerError(f"{folder} holds no vocab.txt; name the folder `model` of a pre-training run")
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.exists() else {}
    vocabulary = Vocabulary.load(folder / "vocab.txt", config.get("do_lower_case", True))
    # Models saved by earlier versions, or by others, have none.
    if config.get("vocabulary_fingerprint", vocabulary.fingerprint) != vocabulary.fingerprint:
        remedy = "restore the file it was trained with"
        raise ProvenformerError(f"{folder / 'vocab.txt'} is not the vocabulary of the model beside it; {remedy}")
    return vocabulary


def load_saved(kind: Any, folder: Path, **overrides: Any) -> Any:
    """The model of a saved folder as `kind`, or its configuration; a head that the folder does not have is new."""
    try:
        return kind.from_pretrained(folder, **overrides)
    except (OSError, TypeError, ValueError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        reason = str(error).splitlines()[0]
        raise ProvenformerError(f"the model in {folder} cannot be loaded ({reason}); make it again") from None

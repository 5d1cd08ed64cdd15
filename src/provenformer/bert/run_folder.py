"""The folder of a training run.

run.json         settings, data and provenance; a resume with other settings or data is refused
checkpoints/     training state, the last two
metrics.jsonl    the curves
model/           the trained model as transformers saves it, with vocab.txt
result.json      the last evaluation, with all of run.json; its presence means finished
"""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from provenformer.atomic import atomic_path, write_json
from provenformer.bert.data.vocabulary import Vocabulary
from provenformer.bert.processes import Processes
from provenformer.bert.provenance import provenance
from provenformer.bert.settings import read_json
from provenformer.bert.sharding import whole_weights
from provenformer.errors import ProvenformerError


class RunFolder:
    """Claimed for one set of settings and data."""

    def __init__(self, path: Path, asked: dict[str, Any], processes: Processes) -> None:
        self.path = path
        self._processes = processes
        plan = path / "run.json"
        if plan.exists() and (earlier := read_json(plan)["asked"]) != asked:
            changed = next((key for key in asked if asked[key] != earlier.get(key)), "an entry")
            raise ProvenformerError(
                f"{path} holds a run with another {changed!r}; choose another --output or remove it"
            )
        processes.wait()  # everyone has looked before the first one writes
        if processes.first:
            write_json(plan, {"asked": asked, "processes": processes.count, "provenance": provenance()})

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished run found."""
        path = self.path / "result.json"
        return read_json(path) if path.exists() else None

    def finish(self, model: Any, vocabulary: Vocabulary, metrics: dict[str, float]) -> dict[str, Any]:
        """Save the model and then, as the sign that all is there, the result, which is returned to every process."""
        first = self._processes.first
        # A model in one piece is left to transformers.
        state = whole_weights(model, keep=first) if self._processes.sharded else None
        if first and not (self.path / "model").exists():
            with atomic_path(self.path / "model") as temporary:
                model.save_pretrained(temporary, state_dict=state)
                save_vocabulary(vocabulary, temporary)
        if first:
            write_json(self.path / "result.json", {"metrics": metrics, **read_json(self.path / "run.json")})
        self._processes.wait()
        return self.result or {}


def save_vocabulary(vocabulary: Vocabulary, folder: Path) -> None:
    """vocab.txt and what transformers' BertTokenizer needs to know of it."""
    vocabulary.save(folder / "vocab.txt")
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizer", "do_lower_case": vocabulary.lowercase},
    )


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a saved model."""
    if not (folder / "vocab.txt").exists():
        raise ProvenformerError(f"{folder} holds no vocab.txt; name the folder `model` of a pre-training run")
    config = folder / "tokenizer_config.json"
    lowercase = read_json(config).get("do_lower_case", True) if config.exists() else True
    return Vocabulary.load(folder / "vocab.txt", lowercase)


def load_saved(kind: Any, folder: Path, **overrides: Any) -> Any:
    """The model of a saved folder as `kind`; a head that the folder does not have is new."""
    try:
        return kind.from_pretrained(folder, **overrides)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise ProvenformerError(f"the model in {folder} cannot be loaded ({reason}); make it again") from None

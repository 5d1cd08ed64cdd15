"""A point: a model after some steps, what its layers tell apart and how well it predicts; of a run that trains, or of files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from experiments.contextual.mixing import mixing
from safetensors import safe_open

from provenformer.base.files import read_json, write_json
from provenformer.bert.data.examples import Examples
from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.models import MixerBertForPreTraining
from provenformer.bert.runtime.metric_log import read_log
from provenformer.bert.runtime.processes import joined
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.runtime.saved_models import load_saved
from provenformer.bert.settings import build_settings, read_settings
from provenformer.bert.training.checkpoint import checkpoints
from provenformer.bert.training.finetune import FinetuneSettings, finetune
from provenformer.bert.training.loop import evaluate
from provenformer.bert.training.pretrain import PretrainingTask, PretrainSettings, model_config, pretrain
from provenformer.contextual.edits import edit, edit_distances
from provenformer.contextual.layers import radius
from provenformer.contextual.models import reader
from provenformer.contextual.reading import corpus_of
from provenformer.contextual.samples import sentences
from provenformer.contextual.senses import senses
from provenformer.contextual.states import collect

MODELS: dict[str, Any] = {
    "sepconv": "sepconv",
    "attention": "attention",
    "bproj": "bproj",
    "average": "average",
    "hybrid-1": ["sepconv", "attention", "attention"],
    "hybrid-2": ["sepconv", "sepconv", "attention"],
    "fourier": "fourier",
}
HERE = Path(__file__).parent
EVALUATED = 500  # held-out examples, the same for every point
Point = dict[str, Any]


class Look:
    """The library's own sentences: medians of delta / r of edits and swaps, and (1 + silhouette) / 2 of senses, per layer."""

    def __init__(self, vocabulary: Path) -> None:
        from transformers import BertTokenizer

        self.tokenizer = BertTokenizer(vocab=str(vocabulary), do_lower_case=True)

    def __call__(self, model: Any) -> dict[str, float]:
        read = reader(model, self.tokenizer)
        corpus = corpus_of(read, sentences(), False, 32)
        states = collect(read, corpus)
        out: dict[str, float] = {}
        for kind in ("replace", "swap"):
            found = edit_distances(read, corpus, states, edit(corpus, kind), "nothing")
            ask = found.must_differ("nothing")
            for k in range(1, len(states.layers)):
                ratio = found.distance[k][ask] / radius(states.layers[k])
                name = {"replace": "edit", "swap": "swap"}[kind]
                out |= {f"{name}_{k}": float(np.median(ratio)), f"{name}_smallest_{k}": float(ratio.min())}
        return out | {f"sense_{k}": (1 + one.silhouette) / 2 for k, one in enumerate(senses(read).layers) if k}


def train(
    name: str, seed: int, data: Path, valid: Path, mnli: tuple[Path, Path] | None, runs: Path, results: Path
) -> None:
    """Pre-train one small model with a look at every evaluation, fine-tune it on MNLI, and keep its points."""
    asked = read_settings(PretrainSettings, HERE / "settings.toml")
    asked = replace(asked, seed=seed, model=asked.model | {"mixers": MODELS[name]})
    run = runs / f"{name}-seed-{seed}"
    pretrain(asked, data, valid, run, watch=Look(data / "vocab.txt"))
    points = [entry for entry in read_log(run / "metrics.jsonl") if {"edit_1", "masked_accuracy"} <= entry.keys()]
    if mnli is not None:
        tuning = replace(read_settings(FinetuneSettings, HERE / "mnli.toml"), seed=seed)
        tuned = finetune(tuning, run / "model", *mnli, runs / f"{name}-seed-{seed}-mnli")
        points[-1]["mnli_accuracy"] = tuned["metrics"]["accuracy"]
    model = load_saved(MixerBertForPreTraining, run / "model")
    _write(results, name, seed, "small", points, mixing(model, model.config.max_position_embeddings))


def from_run(run: Path, valid: Path, results: Path, study: str) -> None:
    """Points of the checkpoints that a run folder of the study has now, beside those that were kept before."""
    asked = build_settings(
        PretrainSettings, read_json(run / "run.json", "name a run folder")["asked"]["settings"], str(run)
    )
    examples = Examples(valid)
    mixers = asked.model["mixers"]
    name = mixers if isinstance(mixers, str) else f"hybrid-{sum(one != 'attention' for one in mixers)}"
    place = f"{study}-{name}-seed-{asked.seed}"
    file = results / f"{place}.json"
    before = json.loads(file.read_text()) if file.exists() else {"points": []}
    known, seen = {point["step"]: point for point in before["points"]}, before.get("mixing", {})
    look = Look(valid / "vocab.txt")
    with joined(None) as processes:
        task = PretrainingTask(
            examples, examples, replace(asked, evaluate_examples=EVALUATED, short_fraction=0.0), processes
        )
        for path in checkpoints(run / "checkpoints"):
            step = int(path.stem.removeprefix("step-"))
            if step not in known:
                model = _of_checkpoint(path, model_config(asked.model, examples.vocabulary, _positions(path)))
                known[step] = {"step": step, **evaluate(model, task), **look(model)}
                seen = mixing(model, examples.seq_len)
                print(
                    place, step, round(known[step]["masked_accuracy"], 4), round(known[step]["edit_1"], 4), flush=True
                )
    _write(results, name, asked.seed, study, [known[step] for step in sorted(known)], seen)


def _of_checkpoint(path: Path, config: MixerBertConfig) -> MixerBertForPreTraining:
    model: MixerBertForPreTraining = MixerBertForPreTraining(config)
    with safe_open(path, framework="pt") as file:
        weights = {name: file.get_tensor(f"weight/{name}") for name, _ in model.named_parameters()}
    model.load_state_dict(weights, strict=False)
    model.eval()
    return model


def _positions(path: Path) -> int:
    with safe_open(path, framework="pt") as file:
        name = next(name for name in file.keys() if name.startswith("weight/") and "position_embeddings" in name)  # noqa: SIM118
        return int(file.get_slice(name).get_shape()[0])


def _write(results: Path, model: str, seed: int, study: str, points: list[Point], seen: dict[str, Any]) -> None:
    found = {"model": model, "seed": seed, "study": study, "mixing": seen, "points": points, "from": provenance()}
    write_json(results / f"{study}-{model}-seed-{seed}.json", found)

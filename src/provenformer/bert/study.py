"""A study: the same training for several models and seeds, then a table. Table 1 and Figure 1 are such studies.

For each model every learning rate is tried for `tuning_steps` steps with the first seed, and the one with the lowest
held-out loss on masked words is kept: an equal tuning budget. Then, for each seed: pre-train, fine-tune, evaluate. What
is finished is not run again, and what stopped resumes.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scipy import stats

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.config import MixerBertConfig
from provenformer.bert.data.examples import Examples
from provenformer.bert.finetune import FinetuneSettings, file_fingerprint, finetune
from provenformer.bert.loop import NotFinite
from provenformer.bert.metric_log import read_log
from provenformer.bert.parameters import count_parameters
from provenformer.bert.pretrain import PretrainSettings, data_fingerprint, model_config, pretrain
from provenformer.bert.processes import joined
from provenformer.bert.provenance import provenance
from provenformer.bert.settings import build_settings, read_json

CONFIDENCE = 0.95


@dataclass(frozen=True)
class StudySettings:
    """What a study compares.

    models    name -> fields of MixerBertConfig that set this model apart; the others are those of `pretrain.model`
    finetune  task ("mnli", "squad") -> its settings
    paper     name -> metric -> the paper's number, shown beside ours
    """

    title: str
    models: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...]
    pretrain: PretrainSettings
    tuning_steps: int = 0
    finetune: dict[str, dict[str, Any]] = field(default_factory=dict)
    paper: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.models and self.seeds and self.learning_rates):
            raise ProvenformerError("a study needs at least one model, seed and learning rate; add them")
        if len(set(self.seeds)) < len(self.seeds):
            raise ProvenformerError(
                f"seeds {list(self.seeds)} has one twice, which is no second run; give different ones"
            )
        if len(self.learning_rates) > 1 and self.tuning_steps < 1:
            rates = len(self.learning_rates)
            raise ProvenformerError(f"{rates} learning rates need tuning_steps of at least 1 to choose; set it")
        if unknown := sorted(self.paper.keys() - self.models.keys()):
            raise ProvenformerError(f"the paper's numbers name {unknown[0]!r}, which is no model here; correct it")
        for task in self.finetune:
            self.finetuning(task, self.seeds[0])

    def finetuning(self, task: str, seed: int) -> FinetuneSettings:
        """The settings of one fine-tuning run."""
        return build_settings(FinetuneSettings, {**self.finetune[task], "task": task, "seed": seed}, f"finetune.{task}")

    def pretraining(self, model: str, seed: int, rate: float) -> PretrainSettings:
        """The settings of one pre-training run."""
        fields = {**self.pretrain.model, **self.models[model]}
        return replace(self.pretrain, model=fields, seed=seed, learning_rate=rate)


@dataclass(frozen=True)
class StudyData:
    """Where the data is: prepared text, and (train, dev) files of each task."""

    train: Path
    valid: Path
    tasks: dict[str, tuple[Path, Path]]


def run_study(
    settings: StudySettings, data: StudyData, runs: Path, results: Path, only: Sequence[str] | None = None
) -> None:
    """Run what is missing, of all models or of `only` these.

    Weights and curves go to `runs`, one JSON file for each model and seed to `results`. Studies that agree on a model's
    settings can share `runs`: it is trained once.
    """
    if unknown := sorted(set(only or ()) - settings.models.keys()):
        known = ", ".join(settings.models)
        raise ProvenformerError(f"the study has no model {unknown[0]!r}; choose from {known}")
    for task in settings.finetune:
        if task not in data.tasks:
            raise ProvenformerError(f"the study fine-tunes on {task}; give its files with --{task} TRAIN DEV")
    # All models with one seed first: a table as early as possible.
    todo = [(model, seed) for seed in settings.seeds for model in only or settings.models]
    for model, seed in todo:
        path = _result_path(results, model, seed)
        if path.exists() and read_json(path)["asked"] != _asked(settings, model, seed, data):
            raise ProvenformerError(f"{path} is from other settings or data; move it away to run them")
    # Read before any process writes: all of them must agree on what is left to do.
    recorded = {model: _recorded_tuning(settings, model, results) for model, _ in todo}
    with joined() as processes:
        for model, seed in todo:
            path = _result_path(results, model, seed)
            if path.exists():
                continue
            if processes.first:
                print(f"{settings.title}: {model}, seed {seed}")
            tuning = recorded[model] or _tune(settings, model, data, runs / model)
            found = run_one(settings, model, seed, tuning, data, runs / model)
            if processes.first:
                write_json(path, found | {"asked": _asked(settings, model, seed, data)})


def run_one(
    settings: StudySettings, model: str, seed: int, tuning: dict[float, float], data: StudyData, runs: Path
) -> dict[str, Any]:
    """Pre-train and fine-tune one model with one seed, with the best learning rate of the tuning."""
    rate = min(tuning, key=tuning.__getitem__) if tuning else settings.learning_rates[0]
    folder = runs / f"seed-{seed}"
    chosen = settings.pretraining(model, seed, rate)
    metrics = dict(pretrain(chosen, data.train, data.valid, folder / "pretrain")["metrics"])
    for task in settings.finetune:
        files = data.tasks[task]
        found = finetune(settings.finetuning(task, seed), folder / "pretrain/model", *files, folder / task)["metrics"]
        metrics |= {f"{task}_{name}": value for name, value in found.items()}
    return {
        "model": model,
        "seed": seed,
        "learning_rate": rate,
        "tuning": {str(tried): loss if math.isfinite(loss) else None for tried, loss in tuning.items()},
        "parameters": count_parameters(_config(chosen, data.train)),
        "metrics": metrics,
        "curve": [line for line in read_log(folder / "pretrain/metrics.jsonl") if "masked_accuracy" in line],
        "provenance": provenance(),
    }


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half the width of its confidence interval, which one seed does not have."""

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {100 * self.half_width:.1f}"
        return f"{100 * self.mean:.1f}{spread}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student's interval of one model's seeds.

    Wide with two seeds, but no other model is asked: whether and when a model leaves the context-free plateau differs
    so much between models that a variance pooled over them would be wrong for most.
    """
    seeds = len(values)
    if seeds == 1:
        return Estimate(values[0], None)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1))
    return Estimate(statistics.mean(values), reach * statistics.stdev(values) / math.sqrt(seeds))


def summary(settings: StudySettings, results: Path) -> dict[str, dict[str, Estimate]]:
    """Model -> metric -> estimate, over the seeds that are finished."""
    every = {model: [r["metrics"] for r in finished(settings, results, model)] for model in settings.models}
    return {
        model: {name: estimate([m[name] for m in seeds]) for name in seeds[0] if not name.endswith("loss")}
        for model, seeds in every.items()
        if seeds
    }


def table(settings: StudySettings, results: Path) -> str:
    """The study as Markdown: percent, mean ± half a 95 % interval, the paper's numbers in brackets."""
    found = summary(settings, results)
    if not found:
        raise ProvenformerError(f"{results} holds no result of this study; run it without --table-only first")
    metrics = list(next(iter(found.values())))
    lines = [
        "| " + " | ".join(["model", "seeds", "parameters", *(metric.replace("_", " ") for metric in metrics)]) + " |",
        "|" + "---|" * (3 + len(metrics)),
    ]
    for model, row in found.items():
        several = list(finished(settings, results, model))
        paper = settings.paper.get(model, {})
        cells = [f"{row[metric]}{_bracketed(paper.get(metric))}" for metric in metrics]
        size = f"{several[0]['parameters']:,}{_bracketed(paper.get('parameters'))}"
        lines.append("| " + " | ".join([model, str(len(several)), size, *cells]) + " |")
    return "\n".join([f"# {settings.title}", "", *lines, ""])


def _bracketed(number: Any) -> str:
    return "" if number is None else f" ({number})"


def finished(settings: StudySettings, results: Path, model: str) -> Iterator[dict[str, Any]]:
    """The results of a model, in the order of the seeds; those of other settings do not belong into the same table."""
    for seed in settings.seeds:
        path = _result_path(results, model, seed)
        if path.exists():
            result = read_json(path)
            for name, value in _settings_asked(settings, model, seed).items():
                if result["asked"][name] != value:
                    raise ProvenformerError(f"{path} is from other settings ({name}); move it away or restore them")
            yield result


def _result_path(results: Path, model: str, seed: int) -> Path:
    return results / f"{model}-seed-{seed}.json"


def _asked(settings: StudySettings, model: str, seed: int, data: StudyData) -> dict[str, Any]:
    """What a result depends on, as JSON gives it back."""
    return _settings_asked(settings, model, seed) | {
        "files": {task: [file_fingerprint(path) for path in data.tasks[task]] for task in settings.finetune},
        "data": data_fingerprint(data.train),
        "valid": data_fingerprint(data.valid),
    }


def _settings_asked(settings: StudySettings, model: str, seed: int) -> dict[str, Any]:
    return {
        "pretrain": asdict(settings.pretraining(model, seed, settings.learning_rates[0])),
        "learning_rates": list(settings.learning_rates),
        "tuning_steps": settings.tuning_steps,
        "finetune": {task: asdict(settings.finetuning(task, seed)) for task in settings.finetune},
    }


def _recorded_tuning(settings: StudySettings, model: str, results: Path) -> dict[float, float]:
    """What `_tune` found for a seed that is finished: its result is enough to go on, should the runs be lost."""
    recorded: dict[str, float | None] = next((result["tuning"] for result in finished(settings, results, model)), {})
    return {float(rate): math.inf if loss is None else loss for rate, loss in recorded.items()}


def _tune(settings: StudySettings, model: str, data: StudyData, runs: Path) -> dict[float, float]:
    """Learning rate -> held-out loss on masked words after `tuning_steps` steps with the first seed."""
    if len(settings.learning_rates) == 1:
        return {}
    losses: dict[float, float] = {}
    refusal: NotFinite | None = None
    for rate in settings.learning_rates:
        # The rate of a short run is constant after warm-up, as at the start of a long one.
        short = replace(
            settings.pretraining(model, settings.seeds[0], rate), steps=settings.tuning_steps, decay="constant"
        )
        try:
            found = pretrain(short, data.train, data.valid, runs / f"rate-{rate:g}")
        except NotFinite as error:  # too high, which is an answer unless all are
            losses[rate], refusal = math.inf, error
        else:
            losses[rate] = found["metrics"]["valid_masked_loss"]
    if refusal and not any(math.isfinite(loss) for loss in losses.values()):
        raise refusal
    return losses


def _config(settings: PretrainSettings, data: Path) -> MixerBertConfig:
    examples = Examples(data)
    return model_config(settings.model, examples.vocabulary, examples.seq_len)

"""What a study compares, and where its data is."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.settings import build_settings, shown
from provenformer.bert.training.finetune import FinetuneSettings, file_fingerprint
from provenformer.bert.training.pretrain import PretrainSettings, data_fingerprint

TRIAL_EPOCHS = "trial_epochs"
RECIPE_OF = "recipe_of"
STARTS_FROM = "starts_from"
EPOCHS_TRIED = "epochs_tried"
OF_THE_STUDY = (
    "recipes",
    TRIAL_EPOCHS,
    EPOCHS_TRIED,
    RECIPE_OF,
    STARTS_FROM,
)  # what a task's table has beside the settings of fine-tuning
ONLY = "only"  # the name of a recipe where there is no choice
# What recipes must not change: how much is learnt, and what is counted.
ONE_FOR_ALL = (
    "seed",
    "steps",
    "batch_size",
    "evaluate_every",
    "evaluate_examples",
    "evaluate_masked_fraction",
    "whole_word",
)


@dataclass(frozen=True)
class StudySettings:
    """What a study compares.

    models        name -> fields of MixerBertConfig that set this model apart; the others are those of `pretrain.model`.
                  The first is run first
    recipes       name -> settings that override those of `pretrain`; every model tries all of them, and keeps the best
    tuning_steps  of such a trial, which is a run in miniature
    tuned_as      model -> the model whose recipe it takes, instead of trying them
    finetune      task ("mnli", "snli", "squad") -> its settings, and beside them
                  `recipes` as above, each tried from the pre-trained weights, in full or for `trial_epochs`; or
                  `recipe_of`, another task, whose recipe a model takes for this one, too;
                  `starts_from`, an earlier task, with whose weights this one starts;
                  `epochs_tried`, in place of `epochs`: each is tried with the recipe, from the weights it starts with
    paper         name -> metric -> the paper's number, shown beside ours
    """

    title: str
    models: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    pretrain: PretrainSettings
    recipes: dict[str, dict[str, Any]]
    tuning_steps: int = 0
    tuned_as: dict[str, str] = field(default_factory=dict)
    finetune: dict[str, dict[str, Any]] = field(default_factory=dict)
    paper: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.models and self.seeds and self.recipes):
            raise ProvenformerError("a study needs at least one model, seed and recipe; add them")
        if len(set(self.seeds)) < len(self.seeds):
            raise ProvenformerError(
                f"seeds {list(self.seeds)} has one twice, which is no second run; give different ones"
            )
        if len(self.recipes) > 1 and self.tuning_steps < 1:
            raise ProvenformerError(f"{len(self.recipes)} recipes need tuning_steps of at least 1 to choose; set it")
        named = {"the paper's numbers": [*self.paper], "tuned_as": [*self.tuned_as, *self.tuned_as.values()]}
        for where, names in named.items():
            if unknown := sorted(set(names) - self.models.keys()):
                raise ProvenformerError(f"{where} name {unknown[0]!r}, which is no model here; correct it")
        if chain := sorted(set(self.tuned_as.values()) & self.tuned_as.keys()):
            raise ProvenformerError(
                f"tuned_as: {chain[0]!r} lends its recipe and takes another's; name the model that tries them"
            )
        for recipe, content in self.recipes.items():
            if fixed := [name for name in ONE_FOR_ALL if name in content]:
                raise ProvenformerError(f"recipes.{recipe}: {fixed[0]} is one for all recipes; set it in pretrain")
            self.pretraining(next(iter(self.models)), self.seeds[0], recipe)
        for place, task in enumerate(self.finetune):
            self._check_task(task, list(self.finetune)[:place])
            for recipe in self.finetune_recipes(task):
                self.trial(task, recipe)
                for epochs in self.epochs_tried(task):
                    self.finetuning(task, self.seeds[0], recipe, epochs)

    def _check_task(self, task: str, earlier: list[str]) -> None:
        said = self.finetune[task]
        other = said.get(RECIPE_OF)
        if RECIPE_OF in said and (
            {"recipes", TRIAL_EPOCHS} & said.keys() or "recipes" not in self.finetune.get(str(other), {})
        ):
            remedy = f"name a task that has recipes, and leave recipes and {TRIAL_EPOCHS} out"
            raise ProvenformerError(f"finetune.{task}: {RECIPE_OF} = {shown(other)}; {remedy}")
        for name in ("held_out_fraction", "seed"):
            if any(name in one for one in (said, *self.finetune_recipes(task).values())):
                raise ProvenformerError(f"finetune.{task}: {name} is set by the study itself; leave it out")
        if STARTS_FROM in said and said[STARTS_FROM] not in earlier:
            remedy = f"name a task that stands before it ({', '.join(earlier) or 'there is none'})"
            raise ProvenformerError(f"finetune.{task}: {STARTS_FROM} = {shown(said[STARTS_FROM])}; {remedy}")
        if EPOCHS_TRIED in said:
            tried = said[EPOCHS_TRIED]
            numbers = {one for one in tried if isinstance(one, int | float)} if isinstance(tried, list) else ()
            if len(numbers) < 2 or len(numbers) < len(tried):
                remedy = "list at least two different numbers"
                raise ProvenformerError(f"finetune.{task}: {EPOCHS_TRIED} = {shown(tried)}; {remedy}")
            if any("epochs" in one for one in (said, *self.finetune_recipes(task).values())):
                raise ProvenformerError(f"finetune.{task}: {EPOCHS_TRIED} stands in place of epochs; leave epochs out")
            if len(said.get("recipes", {})) > 1 and TRIAL_EPOCHS not in said:
                remedy = f"set {TRIAL_EPOCHS}"
                raise ProvenformerError(f"finetune.{task}: the recipes come before {EPOCHS_TRIED}; {remedy}")

    def start_of(self, task: str) -> str:
        """The task with whose weights this one starts; "" for the pre-trained ones."""
        return str(self.finetune[task].get(STARTS_FROM, ""))

    def with_starts(self, tasks: Iterable[str]) -> list[str]:
        """These tasks and those that they start from, the first of each chain first."""
        found: dict[str, None] = {}
        for task in tasks:
            start = self.start_of(task)
            found |= dict.fromkeys([*(self.with_starts([start]) if start else ()), task])
        return list(found)

    def tried_on(self, task: str) -> str:
        """The task on which a task's recipes are tried: as a rule itself."""
        return str(self.finetune[task].get(RECIPE_OF, task))

    def finetune_recipes(self, task: str) -> dict[str, dict[str, Any]]:
        """Name -> settings that override those of the task; one that overrides nothing if there are none."""
        return self.finetune[self.tried_on(task)].get("recipes") or {ONLY: {}}

    def epochs_tried(self, task: str) -> list[float]:
        """The numbers of epochs that a model chooses from, if it does."""
        return list(self.finetune[task].get(EPOCHS_TRIED, ()))

    def finetuning(self, task: str, seed: int, recipe: str, epochs: float | None = None) -> FinetuneSettings:
        """The settings of one fine-tuning run; `epochs` is one of those tried."""
        common = {name: value for name, value in self.finetune[task].items() if name not in OF_THE_STUDY}
        content = {**common, **self.finetune_recipes(task)[recipe], "task": task, "seed": seed}
        content |= {} if epochs is None else {"epochs": epochs}
        return build_settings(FinetuneSettings, content, f"finetune.{task}")

    def trial(self, task: str, recipe: str) -> FinetuneSettings:
        """The settings of a trial but for the held-out part: the first seed, for `trial_epochs` if there are any."""
        full = self.finetuning(task, self.seeds[0], recipe)
        shorter = {"epochs": self.finetune[task].get(TRIAL_EPOCHS, full.epochs)}
        return build_settings(FinetuneSettings, asdict(full) | shorter, f"finetune.{task}.{TRIAL_EPOCHS}")

    def pretraining(self, model: str, seed: int, recipe: str) -> PretrainSettings:
        """The settings of one pre-training run."""
        overrides = self.recipes[recipe]
        fields = {**self.pretrain.model, **overrides.get("model", {}), **self.models[model]}
        content = {**asdict(self.pretrain), **overrides, "model": fields, "seed": seed}
        return build_settings(PretrainSettings, content, f"recipes.{recipe}")

    def only(self, models: list[str] | None) -> "list[str]":
        """These models, or all."""
        if unknown := sorted(set(models or ()) - self.models.keys()):
            raise ProvenformerError(f"the study has no model {unknown[0]!r}; choose from {', '.join(self.models)}")
        return models or list(self.models)

    def only_seeds(self, seeds: list[int] | None) -> list[int]:
        """These seeds, or all."""
        if unknown := sorted(set(seeds or ()) - set(self.seeds)):
            raise ProvenformerError(
                f"the study has no seed {unknown[0]}; choose from {', '.join(map(str, self.seeds))}"
            )
        return seeds or list(self.seeds)


@dataclass(frozen=True)
class StudyData:
    """Where the data is.

    valid   prepared held-out text, which the table is about
    tuning  other held-out text, on which recipes are chosen
    short   the training text in shorter sequences, if `short_fraction` asks for it
    tasks   task -> its train and dev file
    """

    train: Path
    valid: Path
    tuning: Path | None = None
    short: Path | None = None
    tasks: dict[str, tuple[Path, Path]] = field(default_factory=dict)

    def fingerprints(self, held_out: Path) -> dict[str, str]:
        """What pre-training reads."""
        folders = {"data": self.train, "valid": held_out} | ({"short": self.short} if self.short else {})
        return {name: data_fingerprint(folder) for name, folder in folders.items()}

    def files(self, task: str) -> list[str]:
        """What fine-tuning reads."""
        if task not in self.tasks:
            raise ProvenformerError(f"the study fine-tunes on {task}; give its files with --{task} TRAIN DEV")
        return [file_fingerprint(path) for path in self.tasks[task]]

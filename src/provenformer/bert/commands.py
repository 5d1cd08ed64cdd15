"""What the commands of `provenformer bert` do; their options are in `provenformer.cli.bert`."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.bert.data import prepare as preparing
from provenformer.bert.data.sample import write_sample
from provenformer.bert.model.claims import check_all
from provenformer.bert.model.parameters import parameter_table
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.settings import build_settings, read_json, read_settings, read_table
from provenformer.bert.study import (
    StudyData,
    StudySettings,
    comparison_table,
    cost_table,
    recipe_table,
    run_jobs,
    run_study,
    table,
)
from provenformer.bert.study.figure import draw, draw_curves
from provenformer.bert.training import finetune as finetuning
from provenformer.bert.training import pretrain as pretraining
from provenformer.bert.training import texts
from provenformer.bert.training.evaluate import evaluate_run

# transformers reports every file it writes and every new head; ours are the messages that matter here.
logging.disable_progress_bar()
logging.set_verbosity_error()


def params(as_json: bool) -> None:
    """Parameter counts."""
    rows = parameter_table()
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    table = Table("model", "parameters", "paper", "what it is", title="BERT_BASE, masked language model, tied decoder")
    table.columns[1].justify = table.columns[2].justify = "right"
    for row in rows:
        table.add_row(row.model, f"{row.count:,}", row.paper or "", row.note)
    Console().print(table)


def claims(as_json: bool) -> bool:
    """Whether what the paper says about the mixers holds."""
    found = check_all()
    if as_json:
        print(json.dumps([dataclasses.asdict(claim) for claim in found], indent=2))
    else:
        table = Table("", "claim", "evidence", show_lines=True)
        for claim in found:
            table.add_row("holds" if claim.holds else "FAILS", claim.statement, claim.evidence)
        Console().print(table)
    return all(claim.holds for claim in found)


def sample(folder: Path) -> None:
    """A generated corpus and settings."""
    for path in write_sample(folder):
        print(path)


def prepare(
    sources: list[Path],
    output: Path,
    vocabulary: Path | None,
    vocabulary_size: int,
    seq_len: int,
    lowercase: bool,
    seed: int,
) -> None:
    """Text to examples."""
    settings = preparing.PrepareSettings(seq_len, vocabulary_size, lowercase, seed)
    manifest = preparing.prepare(sources, output, settings, vocabulary)
    shards, entries = len(manifest.shards), manifest.vocabulary.size
    print(f"{manifest.examples:,} examples of {seq_len} positions in {shards} shards, {entries:,} WordPieces: {output}")


def pretrain(settings: Path, data: Path, output: Path, valid: Path | None, short: Path | None, shard: bool) -> None:
    """Pre-training, from a settings file."""
    asked = read_settings(pretraining.PretrainSettings, settings)
    with joined(shard=shard) as processes:
        _print_metrics(pretraining.pretrain(asked, data, valid, output, short, processes)["metrics"], processes)


def finetune(
    settings: Path | None,
    model: Path,
    train: Path,
    dev: Path | None,
    output: Path,
    shard: bool,
    given: dict[str, Any],
    as_json: bool,
) -> None:
    """Fine-tuning on MNLI or SQuAD, as a settings file says, or on a table of one's own with what options say."""
    said = {"task": "text"} if settings is None else read_table(settings)
    origin = "the options" if settings is None else str(settings)
    if said.get("task") != "text":
        if given or dev is None:
            option = next(iter(given), "").removesuffix("_columns").removesuffix("_column").replace("_", "-")
            found = f"--{option} is for tables of one's own" if given else "--dev is missing"
            raise ProvenformerError(f"{origin}: {found}; MNLI and SQuAD take everything else from the settings")
        asked = build_settings(finetuning.FinetuneSettings, said, origin)
        with joined(shard=shard) as processes:
            _print_metrics(finetuning.finetune(asked, model, train, dev, output, processes)["metrics"], processes)
        return
    own = build_settings(texts.TextSettings, said | given, origin)
    with joined(shard=shard) as processes:
        metrics = texts.finetune_texts(own, model, train, dev, output, processes)["metrics"]
        if as_json:
            _print_metrics({"metrics": metrics, "model": str(output / "model")}, processes)
        elif processes.first:
            print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
            print(f"saved to {output / 'model'}; load it with: {_how_to_load(output / 'model')}")
        if processes.first and (warning := _no_better_than_a_constant(metrics)):
            print(warning, file=sys.stderr)


def _no_better_than_a_constant(metrics: dict[str, float]) -> str:
    """One line if the model has learnt nothing that shows on the rows it was evaluated on, else nothing."""
    remedy = "train longer (--epochs), with another --learning-rate, or look at the table"
    if "accuracy" in metrics and metrics["accuracy"] <= metrics["constant_accuracy"]:
        found = f"accuracy {metrics['accuracy']:.4f} is no better than always saying the commonest label"
        return f"{found} ({metrics['constant_accuracy']:.4f}); {remedy}"
    if "rmse" in metrics and metrics["rmse"] >= metrics["constant_rmse"]:
        found = f"rmse {metrics['rmse']:.4g} is no better than always saying the mean"
        return f"{found} ({metrics['constant_rmse']:.4g}); {remedy}"
    return ""


def _how_to_load(folder: Path) -> str:
    """For whoever wants to use it."""
    config = read_json(folder / "config.json")
    if "replaced_attention" in config:
        call = f'pipeline("text-classification", model=load_model("{folder}"), tokenizer="{folder}", truncation=True)'
        return f"from provenformer.bert import load_model; {call}"
    ours = "import provenformer.bert; " if config.get("model_type") == "mixer-bert" else ""
    return f'{ours}pipeline("text-classification", model="{folder}", truncation=True)'


def evaluate(run: Path, data: Path) -> None:
    """A finished run on other data."""
    with joined() as processes:
        _print_metrics(evaluate_run(run, data, processes), processes)


def study(
    settings: Path,
    results: Path,
    output: Path | None,
    data: Path | None,
    valid: Path | None,
    tuning: Path | None,
    short: Path | None,
    runs: Path | None,
    tasks: dict[str, tuple[Path, Path] | None],
    only: list[str] | None,
    seeds: list[int] | None,
    pretrain_only: bool,
    table_only: bool,
    figure: bool,
    shard: bool,
    jobs: int,
) -> None:
    """What is missing of a study, and its table."""
    asked = read_settings(StudySettings, settings)
    with joined(shard=shard) as processes:
        if data and valid and runs and not table_only:
            files = {task: paths for task, paths in tasks.items() if paths}
            study = (asked, StudyData(data, valid, tuning, short, files), runs, results, only, seeds)
            if jobs == 1:
                run_study(*study, finetuned=not pretrain_only, processes=processes)
            elif processes.count > 1:
                raise ProvenformerError(f"--jobs {jobs} under torchrun, whose processes share each run; leave it out")
            else:
                run_jobs(jobs, *study, finetuned=not pretrain_only)
        if processes.first:
            _show(asked, results, output or results, only, figure)


def _show(study: StudySettings, results: Path, output: Path, only: list[str] | None, figure: bool) -> None:
    makers = {"table.md": table, "recipes.md": recipe_table, "comparisons.md": comparison_table, "cost.md": cost_table}
    tables = {name: make(study, results, only) for name, make in makers.items()}
    for name, text in tables.items():
        with atomic_path(output / name) as temporary:
            temporary.write_text(text)
    if figure:
        draw(study, results, output / "figure.svg", only)
        draw_curves(study, results, output / "curves.svg", only)
    for text in tables.values():  # at the end: whoever reads it may stop reading
        print(text)


def _print_metrics(metrics: dict[str, Any], processes: Processes) -> None:
    if processes.first:
        print(json.dumps(metrics, indent=2))

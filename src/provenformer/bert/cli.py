"""`provenformer bert ...`: the bench of mixers. Imported only when asked for, since it needs torch."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.model.claims import check_all
from provenformer.bert.model.parameters import parameter_table
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.settings import read_settings
from provenformer.bert.study import StudyData, StudySettings, recipe_table, run_study, table
from provenformer.bert.study.figure import draw, draw_curves
from provenformer.bert.training.evaluate import evaluate_run
from provenformer.bert.training.finetune import FinetuneSettings, finetune
from provenformer.bert.training.pretrain import PretrainSettings, pretrain

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
Run = Annotated[Path, typer.Option(help="Folder of the run; a run that stopped resumes there.")]
SettingsFile = Annotated[Path, typer.Argument(help="TOML or JSON; see docs/training.md.")]
Shard = Annotated[
    bool,
    typer.Option("--shard", help="Under torchrun: split weights, gradients and optimizer state over the processes."),
]
Short = Annotated[
    Path | None, typer.Option(help="The training data in shorter sequences, for the steps that short_fraction says.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.callback()
def _root() -> None:
    """BERT with cheaper token mixers in place of self-attention (Section 6)."""
    # transformers reports every file it writes and every new head; ours are the messages that matter here.
    logging.disable_progress_bar()
    logging.set_verbosity_error()


@app.command()
def params(as_json: AsJson = False) -> None:
    """Parameter counts of BERT_BASE with each mixer, beside the paper's."""
    rows = parameter_table()
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    table = Table("model", "parameters", "paper", "what it is", title="BERT_BASE, masked language model, tied decoder")
    table.columns[1].justify = table.columns[2].justify = "right"
    for row in rows:
        table.add_row(row.model, f"{row.count:,}", row.paper or "", row.note)
    Console().print(table)


@app.command()
def claims(as_json: AsJson = False) -> None:
    """Check what the paper says about the mixers; exit code 1 if a check fails."""
    found = check_all()
    if as_json:
        print(json.dumps([dataclasses.asdict(claim) for claim in found], indent=2))
    else:
        table = Table("", "claim", "evidence", show_lines=True)
        for claim in found:
            table.add_row("holds" if claim.holds else "FAILS", claim.statement, claim.evidence)
        Console().print(table)
    if not all(claim.holds for claim in found):
        raise typer.Exit(1)


@app.command("sample")
def sample_command(folder: Annotated[Path, typer.Argument(help="Where to write it.")]) -> None:
    """Write a small generated corpus, MNLI and SQuAD files and settings: the other commands run on it in a minute."""
    for path in write_sample(folder):
        print(path)


@app.command("prepare")
def prepare_command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Text files or folders: one sentence a line, blank line between documents. Or records, each a document: "
            ".parquet, .arrow, .jsonl, a folder of save_to_disk, hf:NAME[,config=C][,split=S][,column=TEXT][,revision=R]."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Folder for the examples; a run that stopped goes on there.")],
    vocabulary: Annotated[Path | None, typer.Option(help="A vocab.txt to use; without it one is trained.")] = None,
    vocabulary_size: Annotated[int, typer.Option(help="Entries of the trained vocabulary.")] = 30522,
    seq_len: Annotated[int, typer.Option(help="Positions of an example.")] = 128,
    lowercase: Annotated[bool, typer.Option(help="Lower the case and drop accents, as BERT uncased.")] = True,
    seed: int = 0,
) -> None:
    """Turn text into packed, memory-mapped examples with next-sentence pairs."""
    settings = PrepareSettings(seq_len, vocabulary_size, lowercase, seed)
    manifest = prepare(sources, output, settings, vocabulary)
    shards, entries = len(manifest.shards), manifest.vocabulary.size
    print(f"{manifest.examples:,} examples of {seq_len} positions in {shards} shards, {entries:,} WordPieces: {output}")


@app.command("pretrain")
def pretrain_command(
    settings: SettingsFile,
    data: Annotated[Path, typer.Option(help="Prepared training data.")],
    output: Run,
    valid: Annotated[Path | None, typer.Option(help="Prepared held-out data, with the same vocabulary.")] = None,
    short: Short = None,
    shard: Shard = False,
) -> None:
    """Pre-train on masked words and next sentences; under torchrun, on all its processes."""
    asked = read_settings(PretrainSettings, settings)
    with joined(shard=shard) as processes:
        _print_metrics(pretrain(asked, data, valid, output, short, processes)["metrics"], processes)


@app.command("finetune")
def finetune_command(
    settings: SettingsFile,
    model: Annotated[Path, typer.Option(help="The folder `model` of a pre-training run.")],
    train: Annotated[
        Path,
        typer.Option(
            help="MNLI: JSON lines or table; SQuAD: official JSON; .gz as well; or hf:NAME,split=S or a table."
        ),
    ],
    dev: Annotated[Path, typer.Option(help="The same for evaluation.")],
    output: Run,
    shard: Shard = False,
) -> None:
    """Fine-tune on MNLI or SQuAD, as the settings say, and evaluate."""
    asked = read_settings(FinetuneSettings, settings)
    with joined(shard=shard) as processes:
        _print_metrics(finetune(asked, model, train, dev, output, processes)["metrics"], processes)


@app.command("evaluate")
def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[
        Path, typer.Argument(help="Prepared data for a pre-training run, otherwise an MNLI or SQuAD file.")
    ],
) -> None:
    """Evaluate the model of a finished run on other data, with the settings of the run."""
    with joined() as processes:
        _print_metrics(evaluate_run(run, data, processes), processes)


@app.command("study")
def study_command(
    settings: SettingsFile,
    results: Annotated[Path, typer.Option(help="Folder of the results, one file for each model and seed.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder for table and figures; without it that of the results.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Prepared training data.")] = None,
    valid: Annotated[Path | None, typer.Option(help="Prepared held-out data, with the same vocabulary.")] = None,
    tuning: Annotated[Path | None, typer.Option(help="Other held-out data, on which recipes are chosen.")] = None,
    short: Short = None,
    runs: Annotated[Path | None, typer.Option(help="Folder for weights and checkpoints.")] = None,
    mnli: Annotated[tuple[Path, Path] | None, typer.Option(help="Train and dev file.")] = None,
    squad: Annotated[tuple[Path, Path] | None, typer.Option(help="Train and dev file.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="This model only; may be repeated.")] = None,
    pretrain_only: Annotated[bool, typer.Option(help="Leave fine-tuning for later.")] = False,
    table_only: Annotated[bool, typer.Option(help="Run nothing; show what is finished.")] = False,
    figure: Annotated[bool, typer.Option(help="Draw figure.svg and curves.svg as well (needs matplotlib).")] = False,
    shard: Shard = False,
) -> None:
    """Run what is missing of a study such as Table 1, resume what stopped, and print the table."""
    study = read_settings(StudySettings, settings)
    if not table_only and (data is None or valid is None or runs is None):
        raise ProvenformerError("a study needs --data, --valid and --runs; or give --table-only for what is finished")
    with joined(shard=shard) as processes:
        if data and valid and runs and not table_only:
            files = {task: paths for task, paths in (("mnli", mnli), ("squad", squad)) if paths}
            where = StudyData(data, valid, tuning, short, files)
            run_study(study, where, runs, results, only, finetuned=not pretrain_only, processes=processes)
        if processes.first:
            _show(study, results, output or results, only, figure)


def _show(study: StudySettings, results: Path, output: Path, only: list[str] | None, figure: bool) -> None:
    tables = {"table.md": table(study, results, only), "recipes.md": recipe_table(study, results, only)}
    for name, text in tables.items():
        with atomic_path(output / name) as temporary:
            temporary.write_text(text)
        print(text)
    if figure:
        draw(study, results, output / "figure.svg", only)
        draw_curves(study, results, output / "curves.svg", only)


def _print_metrics(metrics: dict[str, float], processes: Processes) -> None:
    if processes.first:
        print(json.dumps(metrics, indent=2))

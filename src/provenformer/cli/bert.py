"""`provenformer bert ...`: the bench of mixers. Nothing here needs torch, so that `--help` works without it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from provenformer.base.errors import ProvenformerError
from provenformer.base.extras import extra
from provenformer.cli.options import AsJson

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="BERT with cheaper token mixers in place of self-attention (Section 6). Needs the extra `bert`.",
)
Run = Annotated[Path, typer.Option(help="Folder of the run; a run that stopped resumes there.")]
SettingsFile = Annotated[Path, typer.Argument(help="TOML or JSON; see docs/training.md.")]
Shard = Annotated[
    bool,
    typer.Option("--shard", help="Under torchrun: split weights, gradients and optimizer state over the processes."),
]
TrainAndDev = Annotated[tuple[Path, Path] | None, typer.Option(help="Train and dev file.")]
Short = Annotated[
    Path | None, typer.Option(help="The training data in shorter sequences, for the steps that short_fraction says.")
]


def _bench() -> Any:
    """What the commands do, imported when one runs: the rest of the command line starts fast and works without torch."""
    with extra("bert", "`provenformer bert`"):
        from provenformer.bert import commands  # noqa: PLC0415
    return commands


@app.command()
def params(as_json: AsJson = False) -> None:
    """Parameter counts of BERT_BASE with each mixer, beside the paper's."""
    _bench().params(as_json)


@app.command()
def claims(as_json: AsJson = False) -> None:
    """Check what the paper says about the mixers; exit code 1 if a check fails."""
    if not _bench().claims(as_json):
        raise typer.Exit(1)


@app.command("sample")
def sample_command(folder: Annotated[Path, typer.Argument(help="Where to write it.")]) -> None:
    """Write a small generated corpus, MNLI and SQuAD files and settings: the other commands run on it in a minute."""
    _bench().sample(folder)


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
    _bench().prepare(sources, output, vocabulary, vocabulary_size, seq_len, lowercase, seed)


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
    _bench().pretrain(settings, data, output, valid, short, shard)


@app.command("finetune")
def finetune_command(
    model: Annotated[Path, typer.Option(help="The folder `model` of a run, or of save_pretrained: BERT, RoBERTa, ...")],
    train: Annotated[
        Path,
        typer.Option(help="A table: .csv, .tsv, .jsonl, .parquet or hf:NAME,split=S. MNLI and SQuAD: their own files."),
    ],
    output: Run,
    settings: Annotated[
        Path | None, typer.Argument(help="TOML or JSON; see docs/training.md. Not needed for a table of your own.")
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(help="The same for evaluation; without it a tenth of your table is held out.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Column of the text; twice for pairs.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="Labels are numbers to predict, not classes.")
    ] = False,
    mixer: Annotated[
        str | None, typer.Option(help="Put this mixer in place of self-attention before training: sepconv, bproj, ...")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="In these layers, counted from 0 at the input, as in 0,1.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the table; 3 by default.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step; 32 by default.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="5e-5 by default.")] = None,
    seq_len: Annotated[
        int | None, typer.Option(help="Tokens of an input, longer ones are cut; 128 by default.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many evaluations without a better one; keep the best.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of order, dropout and the new head.")] = None,
    as_json: AsJson = False,
    shard: Shard = False,
) -> None:
    """Fine-tune on a table of your own (texts or pairs, classes or numbers); or on MNLI or SQuAD, as the settings say."""
    said = {
        "text_columns": text or None,
        "label_column": label,
        "regression": regression or None,
        "mixer": mixer,
        "layers": None if layers is None else _numbers(layers),
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seq_len": seq_len,
        "patience": patience,
        "seed": seed,
    }
    given = {name: value for name, value in said.items() if value is not None}
    _bench().finetune(settings, model, train, dev, output, shard, given, as_json)


def _numbers(listed: str) -> list[int]:
    try:
        return [int(part) for part in listed.split(",")]
    except ValueError:
        raise ProvenformerError(f"--layers {listed!r} is not a list of layers; give numbers, as in 0,1") from None


@app.command("evaluate")
def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[Path, typer.Argument(help="Prepared data for a pre-training run, otherwise a file of its task.")],
) -> None:
    """Evaluate the model of a finished run on other data, with the settings of the run."""
    _bench().evaluate(run, data)


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
    snli: TrainAndDev = None,
    mnli: TrainAndDev = None,
    squad: TrainAndDev = None,
    only: Annotated[list[str] | None, typer.Option(help="This model only; may be repeated.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Run this seed only; may be repeated.")] = None,
    pretrain_only: Annotated[bool, typer.Option(help="Leave fine-tuning for later.")] = False,
    table_only: Annotated[bool, typer.Option(help="Run nothing; show what is finished.")] = False,
    figure: Annotated[bool, typer.Option(help="Draw figure.svg and curves.svg as well (needs matplotlib).")] = False,
    shard: Shard = False,
    jobs: Annotated[int, typer.Option(help="Runs at a time, each in a process of its own.")] = 1,
) -> None:
    """Run what is missing of a study such as Table 1, resume what stopped, and print the table."""
    if not table_only and (data is None or valid is None or runs is None):
        raise ProvenformerError("a study needs --data, --valid and --runs; or give --table-only for what is finished")
    tasks = {"snli": snli, "mnli": mnli, "squad": squad}
    _bench().study(
        settings, results, output, data, valid, tuning, short, runs, tasks, only, seed,
        pretrain_only, table_only, figure, shard, jobs,
    )  # fmt: skip

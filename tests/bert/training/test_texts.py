"""Fine-tuning on tables of one's own: every kind of table, of label and of model, through the command line."""

import csv
import gzip
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForPreTraining,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    pipeline,
)
from typer.testing import CliRunner

from provenformer.base.errors import ProvenformerError
from provenformer.bert import MixerBertConfig, MixerBertForPreTraining, load_model, replace_attention
from provenformer.bert.data.labelled import read_labelled
from provenformer.bert.training.texts import TextSettings, finetune_texts
from provenformer.cli.bert import app

GOOD, BAD, OTHER = ("good", "fine", "nice"), ("bad", "poor", "sad"), ("tea", "cat", "road", "blue", "walk", "seven")
TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 34,
}
FAMILY = {
    "bert": (BertForMaskedLM, BertConfig),
    "roberta": (RobertaForMaskedLM, RobertaConfig),
    "electra": (ElectraForPreTraining, ElectraConfig),
    "distilbert": (DistilBertForMaskedLM, DistilBertConfig),
    "mixer": (MixerBertForPreTraining, MixerBertConfig),
}
QUICK = ("--epochs", 8, "--batch-size", 16, "--learning-rate", "3e-3", "--seq-len", 16)


def words() -> PreTrainedTokenizerFast:
    vocabulary = {word: place for place, word in enumerate(("<pad>", "<unk>", "<s>", "</s>", *GOOD, *BAD, *OTHER))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>"
    )


def model_folder(folder: Path, name: str = "bert", change: bool = False) -> Path:
    torch.manual_seed(0)
    kind, config = FAMILY[name]
    model = kind(config(vocab_size=len(words()), pad_token_id=0, **TINY))
    if change:
        replace_attention(model, [0], "sepconv", filters=4, filter_length=5)
    model.save_pretrained(folder)
    words().save_pretrained(folder)
    return folder


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """A text is positive if it has a good word; `score` is how many tokens it has, in hundreds."""
    drawn = random.Random(seed)
    made = []
    for _ in range(count):
        positive = drawn.random() < 0.5
        text = [drawn.choice(OTHER) for _ in range(drawn.randint(1, 6))] + [drawn.choice(GOOD if positive else BAD)]
        drawn.shuffle(text)
        made.append({"review": " ".join(text), "mood": "up" if positive else "down", "score": 100.0 * len(text)})
    return made


def write(path: Path, table: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pytest.importorskip("datasets").Dataset.from_list(table).to_parquet(str(path))
    elif ".jsonl" in path.name:
        text = "".join(json.dumps(row) + "\n" for row in table)
        _ = path.write_bytes(gzip.compress(text.encode())) if path.suffix == ".gz" else path.write_text(text)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0], delimiter="\t" if path.suffix == ".tsv" else ";")
            writer.writeheader()
            writer.writerows(table)
    return path


def run(*arguments: Any) -> str:
    result = CliRunner().invoke(app, ["finetune", *map(str, arguments)])
    if result.exception:
        raise result.exception
    return result.stdout


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for suffix in ("csv", "tsv", "jsonl", "jsonl.gz", "parquet"):
        write(folder / f"train.{suffix}", rows(160, 0))
    write(folder / "dev.csv", rows(64, 1))
    return folder


KINDS = [("bert", False), ("bert", True), ("roberta", False), ("electra", True), ("distilbert", True), ("mixer", False)]


@pytest.mark.parametrize(("name", "change"), KINDS)
def test_classes_for_every_kind_of_model(name: str, change: bool, tables: Path, tmp_path: Path) -> None:
    folder, dev = model_folder(tmp_path / "base", name, change), ("--dev", tables / "dev.csv")
    where = ("--model", folder, "--train", tables / "train.csv", *dev, "--output", tmp_path / "run")
    said = run(*where, "--text", "review", "--label", "mood", *QUICK, "--json")
    found = json.loads(said)
    assert found["metrics"]["accuracy"] > 0.9
    saved = found["model"]
    model: Any = load_model(saved) if change else saved
    answers = pipeline("text-classification", model=model, tokenizer=saved)([row["review"] for row in rows(64, 1)])
    right = sum(answer["label"] == row["mood"] for answer, row in zip(answers, rows(64, 1), strict=True))
    assert right / 64 == pytest.approx(found["metrics"]["accuracy"])
    if change:
        with pytest.raises(KeyError, match="load_model"):
            pipeline("text-classification", model=saved)
    again = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tables / "dev.csv")])
    assert json.loads(again.stdout)["accuracy"] == pytest.approx(found["metrics"]["accuracy"])
    modes = {path.stat().st_mode for path in Path(saved).iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "jsonl.gz", "parquet"])
def test_every_kind_of_table_says_the_same(suffix: str, tables: Path) -> None:
    wanted = read_labelled(tables / "train.csv", ("review",), "mood", False)
    assert read_labelled(tables / f"train.{suffix}", ("review",), "mood", False) == wanted
    numbers = read_labelled(tables / f"train.{suffix}", ("review",), "", True)
    assert numbers.labels == [row["score"] for row in rows(160, 0)]


def test_numbers_in_their_own_scale(tables: Path, tmp_path: Path) -> None:
    """The scale is learnt beside the model and saved in it: the pipeline gives hundreds."""
    folder = model_folder(tmp_path / "base")
    where = (
        "--model",
        folder,
        "--train",
        tables / "train.csv",
        "--dev",
        tables / "dev.csv",
        "--output",
        tmp_path / "run",
    )
    said = run(*where, "--text", "review", "--label", "score", "--regression", *QUICK, "--json")
    metrics = json.loads(said)["metrics"]
    assert metrics["squared_correlation"] > 0.64
    assert metrics["rmse"] < 100
    saved = str(tmp_path / "run/model")
    answers = pipeline("text-classification", model=saved)([row["review"] for row in rows(64, 1)])
    off = [answer["score"] - row["score"] for answer, row in zip(answers, rows(64, 1), strict=True)]
    assert (sum(each**2 for each in off) / 64) ** 0.5 == pytest.approx(metrics["rmse"], rel=1e-4)
    again = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tables / "dev.csv")])
    assert json.loads(again.stdout)["rmse"] == pytest.approx(metrics["rmse"], rel=1e-4)


def test_pairs_and_a_part_held_out(tmp_path: Path) -> None:
    drawn = random.Random(0)
    table = [{"sentence1": drawn.choice(GOOD + BAD), "sentence2": drawn.choice(GOOD + BAD)} for _ in range(300)]
    for row in table:
        row["label"] = int((row["sentence1"] in GOOD) == (row["sentence2"] in GOOD))  # type: ignore[assignment]
        row["sentence1"] += f" {drawn.choice(OTHER)} {drawn.choice(OTHER)}"
    train = write(tmp_path / "pairs.jsonl", table)
    said = run("--model", model_folder(tmp_path / "base"), "--train", train, "--output", tmp_path / "run", *QUICK)
    assert re.search(r"accuracy 0\.\d{4}|accuracy 1\.0000", said)
    assert f'pipeline("text-classification", model="{tmp_path / "run/model"}", truncation=True)' in said
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert config["id2label"] == {"0": "0", "1": "1"}


def test_one_command_swaps_mixers_and_says_what_went_wrong(tables: Path, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "base")
    where = [
        "--model",
        folder,
        "--train",
        tables / "train.csv",
        "--dev",
        tables / "dev.csv",
        "--output",
        tmp_path / "run",
    ]
    columns = ["--text", "review", "--label", "mood", "--mixer", "sepconv", "--layers", "0,1", "--json"]
    too_little = ["--epochs", 0.1, "--learning-rate", "1e-9", "--seq-len", 6]
    result = CliRunner().invoke(app, ["finetune", *map(str, where + columns + too_little)])
    metrics = json.loads(result.stdout)["metrics"]
    longer = sum(len(row["review"].split()) > 4 for row in rows(160, 0)) / 160  # with <s> and </s>
    assert f"{longer:.1%} of the training inputs have more than 6 tokens and are cut" in result.stderr
    assert "raise --seq-len, the model takes up to 34" in result.stderr
    commonest = max(sum(row["mood"] == mood for row in rows(64, 1)) for mood in ("up", "down")) / 64
    assert metrics["constant_accuracy"] == commonest >= metrics["accuracy"]
    assert f"no better than always saying the commonest label ({commonest:.4f})" in result.stderr
    model = load_model(tmp_path / "run/model")
    assert [(entry["layer"], entry["mixer"]) for entry in model.config.replaced_attention] == [
        (0, "sepconv"),
        (1, "sepconv"),
    ]
    again = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tables / "dev.csv")])
    assert json.loads(again.stdout) == pytest.approx(metrics)


def early(tmp_path: Path, tables: Path, name: str) -> dict[str, Any]:
    settings = TextSettings(
        text_columns=("review",), label_column="mood", epochs=30, batch_size=16, learning_rate=3e-3, seq_len=16,
        patience=2, checkpoint_every=7, threads=1,
    )  # fmt: skip
    return finetune_texts(settings, tmp_path / "base", tables / "train.csv", tables / "dev.csv", tmp_path / name)


def test_early_stopping_keeps_the_best_and_resumes_the_same(tables: Path, tmp_path: Path) -> None:
    model_folder(tmp_path / "base")
    result = early(tmp_path, tables, "whole")
    log = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    accuracies = [entry["accuracy"] for entry in log if "accuracy" in entry]
    assert len(accuracies) < 30
    assert result["metrics"]["accuracy"] == max(accuracies)
    best = [entry["valid_loss"] for entry in log if entry.get("accuracy") == max(accuracies)]
    assert result["metrics"]["valid_loss"] == pytest.approx(min(best), rel=1e-6)
    assert accuracies.index(max(accuracies)) == len(accuracies) - 3
    expected = load_file(tmp_path / "whole/model/model.safetensors")

    # Killed after the last evaluation, before the model is saved; then before the newest checkpoint.
    for checkpoints_lost in (0, 1):
        shutil.copytree(tmp_path / "whole", tmp_path / f"again{checkpoints_lost}")
        again = tmp_path / f"again{checkpoints_lost}"
        shutil.rmtree(again / "model")
        (again / "result.json").unlink()
        for newest in sorted((again / "checkpoints").iterdir())[::-1][:checkpoints_lost]:
            newest.unlink()
        assert early(tmp_path, tables, again.name)["metrics"] == result["metrics"]
        found = load_file(again / "model/model.safetensors")
        assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,label\n", (), "holds no row"),
        ("a,b\nx,1\n", (), "has the columns a, b, none with a usual name; name the texts with --text"),
        ("text,b\nx,1\n", (), "no 'label'; name that of the labels with --label"),
        ("text,label\nx,1\n", ("--text", "nothing"), "no 'nothing'; name the texts with --text"),
        ("text,label\nx,1\nx,y,1\n", (), "row 2 has 3 fields and the header 2; quote texts"),
        ("text,label\nx,1\ny,1\n", (), "one label only"),
        ("text,label\nx,\ny,1\n", (), "row 1: label = '' is no label"),
        ("text,label\nx,0.5\ny,1.5\n", (), "use --regression for numbers"),
        ("text,label\nx,up\ny,1\n", ("--regression",), "row 1: label = 'up' is not a finite number"),
        ("text,label\nx,nan\ny,1\n", ("--regression",), "is not a finite number"),
        (
            "text,label\nx,1\ny,0\n",
            ("--seq-len", 99),
            "seq_len=99 is above the model's 34 positions; lower it with --seq-len",
        ),
        ("text,label\nx,1\ny,0\n", ("--epochs", -1), "the options: epochs=-1.0 must be above 0"),
        ("text,label\nx,1\ny,0\n", ("--text", "a", "--text", "b", "--text", "c"), "more than a pair"),
        ('text,label\n"x,1\ny,0\n', (), "is not quoted as CSV is"),
        ("\udcff", (), "cannot be read as UTF-8 table"),
    ],
)
def test_bad_tables_are_one_line(content: str, options: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    train = tmp_path / "train.csv"
    train.write_bytes(content.encode("utf-8", "surrogateescape"))
    where = ("--model", model_folder(tmp_path / "base"), "--train", train, "--dev", train, "--output", tmp_path / "run")
    with pytest.raises(ProvenformerError, match=re.escape(message)) as caught:
        run(*where, *options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run/model").exists()


def test_other_mistakes_are_one_line(tables: Path, tmp_path: Path) -> None:
    base = model_folder(tmp_path / "base")
    where = (
        "--train",
        tables / "train.csv",
        "--output",
        tmp_path / "run",
        "--text",
        "review",
        "--label",
        "mood",
        *QUICK,
    )
    with pytest.raises(ProvenformerError, match="is no folder; give that of a saved model"):
        run("--model", tmp_path / "nothing", *where)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProvenformerError, match="has no tokenizer"):
        run("--model", tmp_path / "empty", *where)
    (tmp_path / "dev.csv").write_text("review,mood\nx,sideways\n")
    with pytest.raises(ProvenformerError, match="row 1: label 'sideways' is not among down, up"):
        run("--model", base, *where, "--dev", tmp_path / "dev.csv")
    with pytest.raises(ProvenformerError, match="not a kind of table that is known by its name"):
        read_labelled(tmp_path / "x.xlsx", (), "", False)
    settings = tmp_path / "mnli.toml"
    settings.write_text('task = "mnli"\n')
    with pytest.raises(ProvenformerError, match="--text is for tables of one's own"):
        run(settings, "--model", base, *where, "--dev", tables / "dev.csv")
    with pytest.raises(ProvenformerError, match="--dev is missing"):
        run(settings, "--model", base, "--train", tables / "train.csv", "--output", tmp_path / "run")


def test_what_was_refused_before_its_first_step_holds_no_folder(tables: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    asked = (
        "--model",
        model_folder(tmp_path / "model"),
        "--train",
        tables / "train.csv",
        "--text",
        "review",
        "--label",
        "mood",
    )
    short = ("--output", output, "--epochs", 0.1)
    with pytest.raises(ProvenformerError, match="seq_len=99 is above the model's 34 positions"):
        run(*asked, *short, "--seq-len", 99)
    run(*asked, *short, "--seq-len", 16)
    with pytest.raises(ProvenformerError, match=r"holds a run with settings\.seq_len = 16, not 18"):
        run(*asked, *short, "--seq-len", 18)

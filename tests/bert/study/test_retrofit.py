"""The retrofit on a small model and the sample: it runs, resumes, learns the states, and shows only what is its own."""

import dataclasses
import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from experiments.retrofit.recover import retrofitted
from experiments.retrofit.run import finished, run_one
from experiments.retrofit.settings import RecoverySettings, RetrofitSettings
from experiments.retrofit.show import draw, table
from transformers import BertConfig, BertModel

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.sample import write_sample
from provenformer.bert.data.vocabulary import train_vocabulary
from provenformer.bert.model.models import MixerBertModel
from provenformer.bert.model.slot import encoder_layers
from provenformer.bert.settings import read_settings
from provenformer.bert.training.finetune import FinetuneSettings

REPOSITORY = Path(__file__).parents[3]
SETTINGS = RetrofitSettings(
    swapped=(0, 1),
    mixer={"filters": 4, "filter_length": 15},
    recovery=RecoverySettings(
        positions=40_000, seq_len=16, batch_size=16, learning_rate=3e-3, warmup_steps=5, threads=1, evaluate_examples=64
    ),
    mnli=FinetuneSettings(seq_len=32, epochs=0.1, batch_size=16, by_length=True, threads=1),
    timed_pairs=32,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample in the places of the real data, and a small stock model with a vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    write_sample(folder / "sample")
    text = {"text": "train-00", "valid": "valid"}
    for name, as_name in text.items():
        content = "\n".join(path.read_text() for path in sorted((folder / "sample" / name).iterdir()))
        for corpus in ("wiki", "books"):
            _pack(folder / corpus / f"{as_name}.txt.gz", content)
    for name, as_name in {"mnli-train": "train", "mnli-dev": "dev_matched"}.items():
        _pack(folder / "mnli" / f"{as_name}.jsonl.gz", (folder / "sample" / f"{name}.jsonl").read_text())
    words = (folder / "sample/text").iterdir()
    vocabulary = train_vocabulary(lambda: (line for p in words for line in p.read_text().splitlines()), 300)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder / "original")
    vocabulary.save(folder / "original/vocab.txt")
    return folder


def _pack(path: Path, content: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()))


def test_values_and_output_are_the_original_s(data: Path) -> None:
    """With a half-open gate and filters that look at a token itself, SepConv is attention to oneself."""
    model = retrofitted(data / "original", 1, {"filters": 16, "filter_length": 3})
    stock, _ = MixerBertModel.from_bert(data / "original")
    (new, above), (old, old_above) = ([layer.attention for layer in encoder_layers(one)] for one in (model, stock))
    with torch.no_grad():
        new.self.mixer.gate.weight[16:] = 0
        new.self.mixer.filters[:] = torch.tensor([0.0, 1.0, 0.0])
    x = torch.randn(2, 5, 16)
    assert torch.allclose(new.self(x)[0], old.self.value(x), atol=1e-5)
    assert torch.equal(new.output.dense.weight, old.output.dense.weight)
    assert torch.equal(above.self.query.weight, old_above.self.query.weight)


def test_results_table_and_figure(data: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for swapped in SETTINGS.swapped:
        run_one(SETTINGS, swapped, data / "original", data, tmp_path / "runs", results)
    zero, one = finished(SETTINGS, results)
    assert zero.metrics["unrecovered"] == 0
    assert 0 < one.metrics["unrecovered"] < 0.9
    assert one.cpu_seconds.keys() == {"recover", "mnli"}
    # The layer above is the original's until fine-tuning, and embeddings have not moved.
    recovered = MixerBertModel.from_pretrained(tmp_path / "runs/swapped-1/recover/model")
    stock, _ = MixerBertModel.from_bert(data / "original")
    for name, weight in recovered.state_dict().items():
        if name.startswith(("embeddings.", "encoder.layer.1.")):
            assert torch.equal(weight, stock.state_dict()[name])
    assert table([zero, one]).count("\n| ") == 2
    draw([zero, one], tmp_path / "figure.svg")
    # What is there is not run again: the weights are gone, the results are enough.
    shutil.rmtree(tmp_path / "runs")
    run_one(SETTINGS, 1, data / "original", data, tmp_path / "runs", results)
    assert not (tmp_path / "runs").exists()
    other = dataclasses.replace(SETTINGS, mixer={"filters": 8})
    with pytest.raises(ProvenformerError, match="from other settings"):
        finished(other, results)
    with pytest.raises(ProvenformerError, match="from other settings"):
        run_one(other, 1, data / "original", data, tmp_path / "runs", results)


def test_the_settings_and_results_that_are_committed() -> None:
    settings = read_settings(RetrofitSettings, REPOSITORY / "experiments/retrofit/retrofit.toml")
    results = REPOSITORY / "experiments/retrofit/results"
    if any(results.glob("*.json")):
        assert table(finished(settings, results)) == (results.parent / "table.md").read_text()
        assert all(json.loads(path.read_text())["swapped"] in settings.swapped for path in results.glob("*.json"))

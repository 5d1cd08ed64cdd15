"""Whatever is wrong with a file that training reads ends in one line that names it: no stack trace, and never in silence.

Files are made from sound ones: every entry of every JSON document, at every depth, missing or of another kind; every
tensor of a checkpoint missing, of another shape, type or content; single bits flipped.
"""

import json
import math
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from malformed import malformed
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.examples import Examples
from provenformer.bert.data.manifest import HEADER, checksum, read_manifest
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.vocabulary import SPECIAL, Vocabulary
from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.models import MixerBertForPreTraining, MixerBertForSequenceClassification
from provenformer.bert.runtime.metric_log import read_log
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.run_folder import RunFolder, read_result
from provenformer.bert.runtime.saved_models import load_saved, load_vocabulary, save_checksums, save_vocabulary
from provenformer.bert.settings import build_settings
from provenformer.bert.study.finished import finished_one
from provenformer.bert.study.results import read_trials
from provenformer.bert.study.settings import StudySettings
from provenformer.bert.training.checkpoint import load_checkpoint, save_checkpoint
from provenformer.bert.training.optimiser import Muon

ALONE = Processes(0, 1, torch.device("cpu"))
PROVENANCE = {"commit": "0", "python": "3"}
RUN: dict[str, Any] = {"asked": {"settings": {"steps": 3}, "data": "0"}, "processes": 1, "provenance": PROVENANCE}
RESULT: dict[str, Any] = {"metrics": {"accuracy": 0.5}, **RUN}
STUDY = build_settings(
    StudySettings,
    {
        "title": "Study",
        "models": {"attention": {"mixers": "attention"}},
        "seeds": [0],
        "pretrain": {"steps": 3, "model": {"hidden_size": 16}},
        "recipes": {"muon": {"optimizer": "muon"}},
        "finetune": {"mnli": {"epochs": 1.5}},
    },
    "study",
)
STUDY_RESULT = {
    "model": "attention",
    "seed": 0,
    "recipe": "muon",
    "parameters": 10,
    "metrics": {"accuracy": 0.5},
    "tokens": 10,
    "cpu_seconds": {"pretrain": 1.5},
    "curve": [{"step": 1, "accuracy": 0.5}],
    "asked": {
        "pretrain": asdict(STUDY.pretraining("attention", 0, "muon")),
        "data": {"data": "0"},
        "finetune": {
            "mnli": {
                "recipe": "only",
                "settings": asdict(STUDY.finetuning("mnli", 0, "only")),
                "files": ["0", "1"],
                "provenance": PROVENANCE,
            }
        },
    },
    "provenance": PROVENANCE,
}
TRIALS = {
    "trials": {
        "muon": {
            "loss": 1.5,
            "tokens": 10,
            "cpu_seconds": 1.5,
            "asked": {"settings": {"steps": 3}, "data": None},
            "provenance": PROVENANCE,
        }
    }
}
# Changes that mean something else but not nonsense: names and texts that are free, numbers that could have been measured,
# settings that count as their default when they are missing, and data that is compared when it is there.
HARMLESS = re.compile(
    r".*provenance\.\w+: (text|missing|another beside it)"
    r"|.*(metrics|cpu_seconds)\.\w+: (missing|another beside it|fraction)"
    r"|curve\.0: missing|curve\.0\.(step: another beside it|accuracy: (missing|another beside it))"
    r"|asked\.(pretrain|finetune\.mnli\.settings)\..*: missing"
    r"|asked\.finetune\.mnli: missing|asked\.finetune\.mnli\.files\.\d: (text|missing)"
    r"|asked\.data\.data: (text|missing|another beside it)"
    r"|trials\.muon: missing|trials\.muon\.(loss: (null|fraction)|(tokens|cpu_seconds): missing|cpu_seconds: fraction)"
    r"|asked: object|trials\.muon\.asked\.(settings: object|settings\..*|data: .*)"
)


def one_line_about(where: object, action: Callable[[], object]) -> None:
    """The action fails with our error: one line, without anything that a terminal obeys, that names the place."""
    with pytest.raises(ProvenformerError) as caught:
        action()
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 700
    assert str(where) in text


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def broken(document: Any) -> list[Any]:
    return [changed for name, changed in malformed(document) if not HARMLESS.fullmatch(name)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    sentences = [f"the {word} is {other} ." for word in ("cat", "dog", "sun") for other in ("big", "red", "old")]
    (folder / "text.txt").write_text("\n".join([*sentences, "", *reversed(sentences), ""]))
    prepare([folder / "text.txt"], folder / "data", PrepareSettings(seq_len=16, vocabulary_size=80))
    Examples(folder / "data")
    return folder / "data"


def test_every_entry_of_a_data_manifest(prepared: Path, tmp_path: Path) -> None:
    data = shutil.copytree(prepared, tmp_path / "data")
    cases = list(malformed(json.loads((data / "manifest.json").read_text())))
    assert len(cases) > 100
    for _, manifest in cases:
        path = written(data / "manifest.json", manifest)
        one_line_about(data, partial(Examples, data))
    for text in ("", "{", "[]", "3", "null", '{"format": 1, "format": 1}', "[" * 100_000, '"\x00"', "\ufeff{}"):
        one_line_about(path, partial(read_manifest, written(path, text)))
    path.unlink()
    path.mkdir()
    one_line_about(path, partial(Examples, data))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:-1],
        lambda rows: rows[:, :-1],
        lambda rows: rows[0],
        lambda rows: rows.astype(np.int64),
        lambda rows: rows.astype(np.float64) * math.nan,
        lambda rows: rows.astype(">u2"),
        lambda rows: np.where(np.arange(rows.shape[1]) == 0, 2, rows).astype(rows.dtype),  # foreign
        lambda rows: np.where(np.arange(rows.shape[1]) == 1, 0, rows).astype(rows.dtype),  # first
        lambda rows: np.where(np.arange(rows.shape[1]) == 1, 99, rows).astype(rows.dtype),
        lambda rows: np.where(np.arange(rows.shape[1]) == 2, 99, rows).astype(rows.dtype),  # length
        lambda rows: np.where(np.arange(rows.shape[1]) >= HEADER, 5000, rows).astype(rows.dtype),  # ids
        lambda rows: np.array([{"pickled": len(rows)}], dtype=object),
    ],
)
def test_a_shard_that_matches_its_checksum_but_is_none(
    prepared: Path, tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    data = shutil.copytree(prepared, tmp_path / "data")
    shard, manifest = data / "shard-00000.npy", json.loads((data / "manifest.json").read_text())
    np.save(shard, change(np.load(shard)))
    manifest["shards"][0]["checksum"] = checksum(shard)
    written(data / "manifest.json", manifest)
    one_line_about(shard, partial(Examples, data))


def test_a_shard_that_is_no_array(prepared: Path, tmp_path: Path) -> None:
    data = shutil.copytree(prepared, tmp_path / "data")
    shard, manifest = data / "shard-00000.npy", json.loads((data / "manifest.json").read_text())
    whole = shard.read_bytes()
    for content in (
        b"",
        b"\x93NUMPY",
        whole[:20],
        whole[:80],
        whole[:-3],
        b"PK\x03\x04",
        whole.replace(b"descr", b"desc"),
    ):
        shard.write_bytes(content)
        manifest["shards"][0]["checksum"] = checksum(shard)
        written(data / "manifest.json", manifest)
        one_line_about(shard, partial(Examples, data))


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[PAD]\n", "\n".join(SPECIAL).encode() + b"\n\nword", "\n".join([*SPECIAL, "a", "a"]).encode()],
)
def test_vocabularies(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    one_line_about(path, partial(Vocabulary.load, path))
    one_line_about(tmp_path, partial(Vocabulary.load, tmp_path))


def test_every_entry_of_run_json_and_result_json(tmp_path: Path) -> None:
    def claim() -> None:
        with RunFolder(tmp_path, RUN["asked"], ALONE):
            pass

    (tmp_path / "metrics.jsonl").touch()  # begun
    for _, changed in malformed(RUN["asked"]):
        written(tmp_path / "run.json", RUN | {"asked": changed})
        one_line_about(tmp_path, claim)
    for changed in broken(RUN | {"asked": {}}):
        written(tmp_path / "run.json", changed)
        one_line_about(tmp_path, claim)
    written(tmp_path / "result.json", RESULT)
    assert read_result(tmp_path) == RESULT
    for changed in broken(RESULT | {"asked": {}}):
        written(tmp_path / "result.json", changed)
        one_line_about(tmp_path / "result.json", partial(read_result, tmp_path))


def test_every_entry_of_a_study_s_result(tmp_path: Path) -> None:
    path = written(tmp_path / "attention-seed-0.json", STUDY_RESULT)
    assert finished_one(STUDY, tmp_path, "attention", 0) == STUDY_RESULT
    for changed in broken(STUDY_RESULT):
        path.write_text(json.dumps(changed))
        one_line_about(path, partial(finished_one, STUDY, tmp_path, "attention", 0))


def test_every_entry_of_a_search(tmp_path: Path) -> None:
    path = written(tmp_path / "attention.json", TRIALS)
    assert read_trials(path) == TRIALS["trials"]
    for changed in broken(TRIALS):
        path.write_text(json.dumps(changed))
        one_line_about(path, partial(read_trials, path))


def test_every_entry_of_a_log(tmp_path: Path) -> None:
    path, line = tmp_path / "metrics.jsonl", {"step": 3, "loss": 1.5}
    for name, changed in malformed(line):
        if name in ("loss: missing", "loss: fraction") or name.endswith("beside it"):
            continue
        path.write_text(f"{json.dumps(line)}\n{json.dumps(changed)}\n")
        one_line_about(f"{path}, line 2", partial(read_log, path))
    for text in ("\n", "{\n", "[]\n", '{"step": 1e400}\n'):
        path.write_text(text)
        one_line_about(path, partial(read_log, path))
    path.write_bytes(b"\xff\n")
    one_line_about(path, partial(read_log, path))


# Checkpoints.


def state(seed: int) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    """A model and its optimizers after a step that depends on the seed."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    hidden, *others = model.parameters()
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, lr=0.1), Muon([hidden], 0.1, 0.0)]
    model(torch.randn(5, 3)).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    return model, optimizers


def everything(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[Tensor]:
    moments = [one for optimizer in optimizers for parts in optimizer.state.values() for one in parts.values()]
    return [one.detach().clone() for one in (*model.parameters(), *moments)]


def refused(path: Path) -> None:
    """Loading is refused, and leaves model and optimizers as they were."""
    model, optimizers = state(1)
    before = everything(model, optimizers)
    one_line_about(path, partial(load_checkpoint, path.parent, model, optimizers))
    assert all(torch.equal(one, other) for one, other in zip(before, everything(model, optimizers), strict=True))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    model, optimizers = state(0)
    save_checkpoint(tmp_path / "checkpoints", 7, model, optimizers, ALONE)
    other = state(1)
    assert load_checkpoint(tmp_path / "checkpoints", *other) == 7
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other[0].parameters(), strict=True))
    return tmp_path / "checkpoints/step-00000007.safetensors"


ODD_TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "scalar": lambda t: t.flatten()[0].clone(),
    "one entry": lambda t: t.flatten()[:1].clone(),
    "broadcastable": lambda t: t[:1].clone() if t.shape[0] > 1 else t[0].clone(),
    "one axis more": lambda t: t[None].clone(),
    "flat": lambda t: t.flatten() if t.ndim > 1 else t[:, None].clone(),
    "empty": lambda t: t[:0].clone(),
    "longer": lambda t: torch.cat([t, t]),
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "bfloat16": lambda t: t.bfloat16(),
    "int64": lambda t: t.long(),
    "int8": lambda t: t.to(torch.int8),
    "bool": lambda t: t > 0,
    "nan": lambda t: t * math.nan,
    "one inf": lambda t: torch.where(torch.arange(t.numel()).view(t.shape) == 0, math.inf, t),
}


@pytest.mark.parametrize("with_digest", [True, False])
def test_every_tensor_of_a_checkpoint(checkpoint: Path, with_digest: bool) -> None:
    """Also without the digest, which earlier versions did not write: names, shapes, types and finite numbers."""
    sound = load_file(checkpoint)
    with safe_open(checkpoint, framework="pt") as file:
        header = file.metadata() if with_digest else {"step": "7"}
    cases = [{n: t for n, t in sound.items() if n != name} for name in sound]
    cases += [sound | {name: change(sound[name])} for name in sound for change in ODD_TENSORS.values()]
    cases += [sound | {"weight/other": torch.zeros(1)}, {}]
    cases += [sound | {name: -tensor - 1} for name, tensor in sound.items() if name.startswith("exp_avg_sq/")]
    assert len(cases) > 150
    for tensors in cases:
        save_file(tensors, checkpoint, metadata=header)
        refused(checkpoint)


def test_every_entry_of_a_checkpoint_s_header(checkpoint: Path) -> None:
    sound = load_file(checkpoint)
    with safe_open(checkpoint, framework="pt") as file:
        header = file.metadata()
    odd = ["", "-7", "8", "7.0", "nan", "9" * 5000, "0x7", "\x1b[31m", "\u0667"]
    cases: list[dict[str, str] | None] = [header | {"step": value} for value in odd]
    cases += [header | {"sha256": value} for value in ("", "0" * 64, header["sha256"].upper())]
    cases += [None, {"sha256": header["sha256"]}, header | {"more": "1"}, {"step": "7", "sha257": header["sha256"]}]
    for metadata in cases:
        save_file(sound, checkpoint, metadata=metadata)
        refused(checkpoint)
    save_file(sound, checkpoint, metadata=header)
    checkpoint.rename(checkpoint.with_name("step-00000009.safetensors"))
    refused(checkpoint.with_name("step-00000009.safetensors"))


def test_every_single_bit_of_a_checkpoint(checkpoint: Path) -> None:
    """500 bits anywhere, and one of each byte of the header."""
    whole, random_bits = checkpoint.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    bits = [8 * byte + random_bits.randrange(8) for byte in range(header)]
    bits += [random_bits.randrange(8 * len(whole)) for _ in range(500)]
    model, optimizers = state(1)
    before = everything(model, optimizers)
    for bit in bits:
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        checkpoint.write_bytes(changed)
        one_line_about(checkpoint, partial(load_checkpoint, checkpoint.parent, model, optimizers))
    assert all(torch.equal(one, other) for one, other in zip(before, everything(model, optimizers), strict=True))


def test_a_checkpoint_of_an_earlier_version_is_loaded_and_the_missing_digest_is_said(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(load_file(checkpoint), checkpoint, metadata={"step": "7"})
    assert load_checkpoint(checkpoint.parent, *state(1)) == 7
    assert "without a digest" in capsys.readouterr().err


# Saved models.


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    vocabulary = Vocabulary([*SPECIAL, "a", "b"])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = MixerBertConfig(mixers="sepconv", vocab_size=7, max_position_embeddings=8, **sizes)
    MixerBertForPreTraining(config).save_pretrained(tmp_path / "model")
    save_vocabulary(vocabulary, tmp_path / "model")
    save_checksums(tmp_path / "model")
    load_saved(MixerBertForPreTraining, tmp_path / "model")
    return tmp_path / "model"


def test_every_tensor_of_a_saved_model(model_folder: Path) -> None:
    """With checksums any change is told; without them, as others save models, all but a changed number."""
    weights = model_folder / "model.safetensors"
    sound = load_file(weights)
    below = [name for name in sound if name.startswith("bert.") and ".pooler." not in name]
    cases = [{n: t for n, t in sound.items() if n != name} for name in below]
    cases += [
        sound | {name: change(sound[name])}
        for name in (below[0], below[-1], "bert.encoder.layer.0.attention.self.mixer.filters")
        for kind, change in ODD_TENSORS.items()
        if kind not in ("float64", "float16", "bfloat16")  # other people's models may be of these
    ]
    for checksums in (True, False):
        if not checksums:
            (model_folder / "checksums.json").unlink()
        for tensors in cases:
            save_file(tensors, weights, metadata={"format": "pt"})
            one_line_about(model_folder, partial(load_saved, MixerBertForSequenceClassification, model_folder))


def test_every_entry_of_a_saved_model_s_json(model_folder: Path) -> None:
    path = model_folder / "config.json"
    sound = path.read_text()
    for _, changed in malformed(json.loads(sound)):
        path.write_text(json.dumps(changed))
        one_line_about(path, partial(load_saved, MixerBertConfig, model_folder))
    path.write_text(sound)
    checksums = model_folder / "checksums.json"
    for _, changed in malformed(json.loads(checksums.read_text())):
        checksums.write_text(json.dumps(changed))
        one_line_about(model_folder, partial(load_saved, MixerBertConfig, model_folder))
    checksums.unlink()
    for name, changed in malformed(json.loads(sound)):
        # Nothing to compare with, and many entries are free: all that is asked for is no stack trace.
        if name.endswith(("null", "negative", "huge", "nested", "object")):
            path.write_text(json.dumps(changed))
            with suppress(ProvenformerError):
                load_saved(MixerBertConfig, model_folder)
    tokenizer = model_folder / "tokenizer_config.json"
    for name, changed in malformed(json.loads(tokenizer.read_text())):
        if name.startswith(("do_lower_case", "vocabulary_fingerprint")) and not name.endswith(("missing", "beside it")):
            tokenizer.write_text(json.dumps(changed))
            one_line_about(model_folder, partial(load_vocabulary, model_folder))

"""Saving and loading: bit for bit, atomic, strict, and nothing that could run code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import thin

import provenformer as pf
from provenformer import storage
from provenformer.networks.thin import ReluRun


def compiled(name: str = "scaled-mean", d: int = 1, n: int = 3, cells: int = 4, **options: Any) -> pf.Compiled:
    return pf.compile(pf.targets.get(name, d, n), cells_per_axis=cells, **options)


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize(
    ("name", "d", "n", "cells"), [("scaled-mean", 1, 3, 8), ("centered", 2, 2, 3), ("sort", 1, 3, 3)]
)
def test_round_trip_is_bit_identical(construction: str, name: str, d: int, n: int, cells: int, tmp_path: Path) -> None:
    c = compiled(name, d, n, cells, construction=construction)
    c.save(tmp_path / "net")
    loaded = pf.load(tmp_path / "net")
    for before, after in zip(thin(c.network).runs, thin(loaded.network).runs, strict=True):
        assert type(before) is type(after)
        for key, value in vars(before).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(getattr(after, key), value)
                assert getattr(after, key).shape == value.shape
            else:
                assert getattr(after, key) == value
    assert loaded.certificate == c.certificate
    assert loaded.target is not None
    assert loaded.target.name == name
    x = np.concatenate([c.target.sample(50), c.target.sample(20) * 3 - 1])
    np.testing.assert_array_equal(loaded.network(x), c.network(x))
    np.testing.assert_array_equal(loaded.target(x[:5]), c.target(x[:5]))
    loaded_twice = pf.load(tmp_path / "net")
    assert loaded_twice.manifest == loaded.manifest


def test_weights_shared_by_all_layers_are_stored_once(tmp_path: Path) -> None:
    c = compiled(cells=16)
    c.save(tmp_path / "net")
    run = max(thin(pf.load(tmp_path / "net").network).runs, key=len)
    assert isinstance(run, ReluRun)
    assert run.W_1.strides[0] == 0
    assert run.W_1.shape == (len(run), 4, 1)
    stored = (tmp_path / "net" / storage.NETWORK).stat().st_size
    everything = sum(v.size * 8 for r in thin(c.network).runs for v in vars(r).values() if isinstance(v, np.ndarray))
    assert stored < 0.7 * everything


def test_only_safetensors_and_json(tmp_path: Path) -> None:
    compiled().save(tmp_path / "net")
    assert sorted(p.name for p in (tmp_path / "net").iterdir()) == [
        "certificate.json",
        "manifest.json",
        "network.safetensors",
    ]
    for name in ("certificate.json", "manifest.json"):
        json.loads((tmp_path / "net" / name).read_text())
    header = int.from_bytes((tmp_path / "net" / "network.safetensors").read_bytes()[:8], "little")
    json.loads((tmp_path / "net" / "network.safetensors").read_bytes()[8 : 8 + header])


def test_no_pickle_in_the_package() -> None:
    source = Path(pf.__file__).parent
    for file in source.rglob("*.py"):
        text = file.read_text()
        assert "import pickle" not in text, file
        assert "allow_pickle=True" not in text, file
        assert "torch.load" not in text or "weights_only=True" in text, file


# Strict loading.


def edit(folder: Path, change: dict[str, Any]) -> None:
    manifest = {**json.loads((folder / storage.MANIFEST).read_text()), **change}
    manifest["manifest_sha256"] = storage.manifest_hash(manifest)
    (folder / storage.MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"runs": []}, {"runs": 5}, {"runs": [{"kind": "pickle", "stage": "x", "layers": 1}]}, {"token_dim": None},
        {"token_dim": 1.0}, {"positional": True}, {"seq_len": -3}, {"sha256": {}}, {"sha256": {"../x": "0"}},
    ],
)  # fmt: skip
def test_malformed_manifests(change: dict[str, Any], tmp_path: Path) -> None:
    compiled().save(tmp_path / "net")
    edit(tmp_path / "net", change)
    with pytest.raises(pf.ProvenformerError) as refusal:
        pf.load(tmp_path / "net")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("layers", [-1, 3, 10**9, True, "1", 1.5])
def test_wrong_run_lengths(layers: object, tmp_path: Path) -> None:
    compiled().save(tmp_path / "net")
    runs = json.loads((tmp_path / "net" / storage.MANIFEST).read_text())["runs"]
    longest = max(range(len(runs)), key=lambda i: runs[i]["layers"])
    runs[longest]["layers"] = layers
    edit(tmp_path / "net", {"runs": runs})
    with pytest.raises(pf.ProvenformerError):
        pf.load(tmp_path / "net")


def test_missing_parts(tmp_path: Path) -> None:
    for name in (storage.NETWORK, storage.CERTIFICATE, storage.MANIFEST):
        compiled().save(tmp_path / name)
        (tmp_path / name / name).unlink()
        with pytest.raises(pf.ProvenformerError, match="cannot read"):
            pf.load(tmp_path / name)
    with pytest.raises(pf.ProvenformerError, match="cannot read"):
        pf.load(tmp_path / "nowhere")


def test_unknown_tensors_and_types(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    for name, value in (
        ("extra", np.zeros(3)),
        ("runs.99.W_1", np.zeros((1, 4, 1))),
        ("runs.0.b_1", np.zeros((1, 4), np.float32)),
    ):
        compiled().save(tmp_path / "net")
        file = tmp_path / "net" / storage.NETWORK
        save_file({**load_file(file), name: value}, file)
        edit(
            tmp_path / "net",
            {"sha256": {n: storage.file_hash(tmp_path / "net" / n) for n in (storage.NETWORK, storage.CERTIFICATE)}},
        )
        with pytest.raises(pf.ProvenformerError):
            pf.load(tmp_path / "net")

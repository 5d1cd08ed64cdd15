"""Whose target a claim is checked against; nothing that a folder names is imported unless the user says so."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import forge

import provenformer as pf
from provenformer import storage
from provenformer.certificates.claim import YOURS, claim_about


def importable(x: np.ndarray) -> np.ndarray:
    return x * 0.5


HALF = pf.Target(importable, 1, 2, lipschitz=0.5, support=(-1, 2), name="half")
MARK = """
from pathlib import Path
Path(__file__).with_name("ran").touch()

def half(x):
    return 0.5 * x
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network whose folder names a function of a module that leaves a mark when it is imported."""
    (tmp_path / "marking_module.py").write_text(MARK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "marking_module", raising=False)
    pf.compile(pf.Target(importable, 1, 2), cells_per_axis=3).save(tmp_path / "net")
    spec = pf.load(tmp_path / "net").manifest["target"]
    forge(tmp_path / "net", manifest={"target": {**spec, "import": "marking_module:half"}})
    return tmp_path


def test_nothing_that_a_folder_names_is_imported(stranger: Path) -> None:
    saved = pf.load(stranger / "net")
    saved.network(np.zeros((1, 1, 2)))
    assert saved.target is None
    assert saved.why_no_target is not None
    assert "marking_module:half" in saved.why_no_target
    with pytest.raises(pf.ProvenformerError, match="trust_target=True") as refusal:
        pf.verify(stranger / "net")
    assert "\n" not in str(refusal.value)
    own = pf.verify(stranger / "net", pf.Target(importable, 1, 2))
    assert own
    assert "you gave" in own.claim.whose
    assert not (stranger / "ran").exists()
    assert "marking_module" not in sys.modules


def test_the_folders_function_is_imported_when_the_user_says_so(stranger: Path) -> None:
    report = pf.verify(stranger / "net", trust_target=True)
    assert report
    assert (stranger / "ran").exists()
    assert "which the folder names" in report.claim.whose
    assert "not the one that the network was made from" in str(report.claim)  # other text, same values
    assert pf.load(stranger / "net").import_target().name == "user function"


def test_a_report_does_not_import_either(stranger: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    from provenformer.report import report

    report(stranger / "net", stranger / "page.html")
    assert not (stranger / "ran").exists()


@pytest.mark.parametrize("path", ["builtins:exec", "os:system", "no_such_module:f", "this", "", ":", "antigravity:x"])
def test_import_paths_of_a_forger(path: str, tmp_path: Path) -> None:
    pf.compile(HALF, cells_per_axis=3).save(tmp_path / "net")
    spec = pf.load(tmp_path / "net").manifest["target"]
    forge(tmp_path / "net", manifest={"target": {**spec, "import": path}})
    before = set(sys.modules)
    with pytest.raises(pf.ProvenformerError, match="unless you say so"):
        pf.verify(tmp_path / "net")
    assert set(sys.modules) - before == set()


def test_targets_are_found_again(tmp_path: Path) -> None:
    """Built-in by name, a function by import path when asked; a lambda must be passed to verify."""
    pf.compile(HALF, cells_per_axis=3).save(tmp_path / "import")
    assert pf.load(tmp_path / "import").import_target() == HALF
    trusted = pf.verify(tmp_path / "import", trust_target=True)
    assert trusted
    assert trusted.claim.notes == ()
    assert trusted.claim.digest == storage.source_digest(HALF)
    opaque = pf.Target(lambda x: x * 0.5, 1, 2)
    pf.compile(opaque, cells_per_axis=3).save(tmp_path / "opaque")
    assert pf.load(tmp_path / "opaque").target is None
    for trust in (False, True):
        with pytest.raises(pf.ProvenformerError, match="target="):
            pf.verify(tmp_path / "opaque", trust_target=trust)
    assert pf.verify(tmp_path / "opaque", opaque)
    spec = pf.load(tmp_path / "import").manifest["target"]
    forge(tmp_path / "import", manifest={"target": {**spec, "import": "no_such_module:f"}})
    with pytest.raises(pf.ProvenformerError, match="no_such_module"):
        pf.verify(tmp_path / "import", trust_target=True)


def test_a_built_in_name_of_another_version(tmp_path: Path) -> None:
    pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=2).save(tmp_path / "net")
    spec = pf.load(tmp_path / "net").manifest["target"]
    forge(tmp_path / "net", manifest={"target": {**spec, "name": "of-the-future"}})
    saved = pf.load(tmp_path / "net")
    assert saved.target is None
    assert "of-the-future" in str(saved.why_no_target)
    with pytest.raises(pf.ProvenformerError, match="of-the-future"):
        pf.verify(tmp_path / "net")
    assert pf.verify(tmp_path / "net", pf.targets.get("centered", 1, 2))


def test_the_target_you_name_is_the_one_that_is_checked(tmp_path: Path) -> None:
    c = pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=3)
    c.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report.claim.whose == "built in"
    assert "centered" in str(report.claim)
    assert not pf.verify(tmp_path / "net", pf.targets.get("scaled-mean", 1, 2))
    assert not pf.verify(tmp_path / "net", pf.targets.get("centered", 1, 2, (0.0, 2.0)))
    with pytest.raises(pf.ProvenformerError, match="is not a Target"):
        pf.verify(tmp_path / "net", np.tanh)  # type: ignore[arg-type]


def test_a_claim_is_stated_in_full(tmp_path: Path) -> None:
    f = pf.Target(importable, 1, 2, lipschitz=0.5, support=(-1, 2), name="half")
    c = pf.compile(f, cells_per_axis=3, norm_order=1, kind="lipschitz")
    c.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net", f)
    words = str(report.claim)
    for part in (
        "d_1(f, g) <= ",
        "the box [-1, 2]",
        "2 tokens of 1 number",
        "half",
        "you gave",
        "lipschitz",
        "0.5",
        "sha256",
    ):
        assert part in words, part
    plain = json.loads(json.dumps(report.to_json()))["claim"]
    assert plain["norm_order"] == 1
    assert plain["domain"] == "box"
    assert plain["kind"] == "lipschitz"
    assert plain["support"] == [[-1.0], [2.0]]
    assert plain["digest"] == storage.source_digest(f)


# Claims about stored pairs.


def memorised(folder: Path, count: int = 3) -> pf.Memorized:
    x, y = np.random.default_rng(0).random((2, count, 1, 2))
    made = pf.memorize(x, y)
    made.save(folder)
    return made


def test_a_data_set_claims_its_pairs_only(tmp_path: Path) -> None:
    made = memorised(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report
    assert "on the 3 stored pairs only" in report.reason
    assert "on the 3 stored pairs only" in str(report.claim)
    assert report.claim.digest == made.certificate.details["pairs_sha256"]
    with pytest.raises(pf.ProvenformerError, match="stored pairs of sequences only"):
        pf.verify(tmp_path / "net", pf.targets.get("centered", 1, 2))


def test_other_pairs_than_the_certificates(tmp_path: Path) -> None:
    made = memorised(tmp_path / "net")
    facts = {"construction": "sum", "target": {"source": "data"}}
    fewer = {"inputs": made.inputs[:1], "outputs": made.outputs[:1]}
    storage.save(tmp_path / "net", made.network, made.certificate, facts, fewer)
    assert "not those that the certificate names" in pf.verify(tmp_path / "net").reason
    none = {"inputs": made.inputs[:0], "outputs": made.outputs[:0]}
    storage.save(tmp_path / "net", made.network, made.certificate, facts, none)
    with pytest.raises(pf.ProvenformerError, match="without a single pair"):
        pf.verify(tmp_path / "net")


def test_a_function_behind_a_data_certificate(tmp_path: Path) -> None:
    """The domain is the forger's to choose: a claim about one stored pair must not pass for one about a function."""
    f = pf.targets.get("softmax-mean", 1, 2)
    c = pf.compile(f, cells_per_axis=4)
    facts = {"construction": "sum", "cells_per_axis": 4, "target": storage.target_spec(f)}
    pair = {"inputs": np.full((1, 1, 2), 0.25), "outputs": c.network(np.full((1, 1, 2), 0.25))}
    ends: dict[str, Any] = {"clip_low": (float(pair["outputs"].min()),), "clip_high": (float(pair["outputs"].max()),)}
    forged = replace(c.certificate, domain="data", bound=0.0, terms={"rounding": 0.0}, norm_order=None, **ends)
    storage.save(tmp_path / "net", c.network, forged, facts, pair)
    for target in (None, f):
        with pytest.raises(pf.ProvenformerError, match="stored pairs"):
            pf.verify(tmp_path / "net", target)
    forge(tmp_path / "net", manifest={"target": {"source": "data"}})
    assert "on the 1 stored pairs only" in pf.verify(tmp_path / "net").reason


# Claims over the whole space.


def bump(x: np.ndarray) -> np.ndarray:
    u = np.maximum(4.0 * x * (1.0 - x), 0.0)
    return u * np.min(u, axis=-1, keepdims=True)


def test_the_whole_space_rests_on_your_word(tmp_path: Path) -> None:
    f = pf.Target(bump, 1, 2, vanishes_outside=True)
    c = pf.compile(f, cells_per_axis=4)
    assert c.certificate.domain == "space"
    c.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net", f)
    assert report
    assert "vanishes outside the box [0, 1] is declared by you, not proved" in str(report.claim)


@pytest.mark.parametrize("fn", [lambda x: x + 1.0, lambda x: np.maximum(x * (1 - x), 0.0), lambda x: 1e-6 + 0 * x])
def test_a_function_that_does_not_vanish_is_refused(fn: object, tmp_path: Path) -> None:
    """x (1 - x) is 0 in the token on the border only: the others still count."""
    f = pf.Target(fn, 1, 2, vanishes_outside=True)  # type: ignore[arg-type]
    with pytest.raises(pf.ProvenformerError, match="not 0 on its border"):
        pf.compile(f, cells_per_axis=3)
    pf.compile(pf.Target(bump, 1, 2, vanishes_outside=True), cells_per_axis=3).save(tmp_path / "net")
    with pytest.raises(pf.ProvenformerError, match="not 0 on its border"):
        pf.verify(tmp_path / "net", f)


# What a certificate records beside its claim.


@pytest.mark.parametrize(
    "change",
    [
        {"terms": dict.fromkeys(("piecewise", "lost cubes", "ramps", "softmax", "rounding"), 0.0)},
        {"terms": {"piecewise": 0.0}},
        {"terms": {}},
        {"clip_low": [-9.0], "clip_high": [9.0]},
        {"clip_high": [0.0]},
    ],
)
def test_false_terms_and_a_false_clip_are_rejected(change: dict, tmp_path: Path) -> None:
    pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=3).save(tmp_path / "net")
    forge(tmp_path / "net", certificate=change)
    report = pf.verify(tmp_path / "net")
    assert not report
    assert report.derived is not None  # the bound itself is true
    assert "certificate" in report.reason


@pytest.mark.parametrize("name", ["piecewise", "ramps"])
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_a_term_that_is_wrong_either_way(name: str, factor: float, tmp_path: Path) -> None:
    c = pf.compile(pf.targets.get("softmax-mean", 1, 2), cells_per_axis=3)
    c.save(tmp_path / "net")
    change = 40 if name == "ramps" and factor > 1 else factor
    forge(tmp_path / "net", certificate={"terms": {**c.certificate.terms, name: c.certificate.terms[name] * change}})
    assert not pf.verify(tmp_path / "net")


# Manners.


def test_one_line_representations_and_no_comparison_of_arrays(tmp_path: Path) -> None:
    made = memorised(tmp_path / "data")
    c = pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=3)
    c.save(tmp_path / "net")
    tokens = pf.compile_tokens(lambda t: t[::-1], vocab=["a", "b"], seq_len=2)
    saved = pf.load(tmp_path / "net")
    things: tuple[object, ...] = (made, c, tokens, saved, pf.load(tmp_path / "data"), c.certificate, made.certificate)
    for thing in things:
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 250
        assert thing != 5
    assert saved != pf.load(tmp_path / "net")
    assert saved.construction == "sum"
    assert saved.grid == c.grid
    assert pf.load(tmp_path / "data").grid is None


def test_the_printed_claim_promises_no_more_than_was_proved() -> None:
    """The box as it is, not as six digits show it, and a bound that is rounded up."""
    f = pf.targets.get("centered", 1, 2, support=(0.0, 0.9999996))
    certificate = replace(pf.compile(f, cells_per_axis=2).certificate, bound=0.0100004)
    sentence = claim_about(certificate, f, YOURS, None).sentence
    assert "[0, 0.9999996]" in sentence
    assert "<= 0.010001 " in sentence
    assert "<= 0.0001 " in claim_about(replace(certificate, bound=0.0001), f, YOURS, None).sentence

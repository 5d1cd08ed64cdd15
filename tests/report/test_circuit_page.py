"""The page about a circuit: self-contained and accessible as the others are, its numbers those of the library."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from circuit_cases import COMPILES, layer_norm, target, transformer_block
from report_cases import Page

import provenformer as pf
from provenformer import cli
from provenformer.anatomy.words import upper
from provenformer.look.circuit import CircuitSubject
from provenformer.look.patterns import FINEST, averaged
from provenformer.report import report
from provenformer.report.circuit_findings import find_circuit
from provenformer.report.pictures_circuit import pictures

EVIL = '"><script>alert(1)</script>'
CASES = {
    "softmax-mean": pf.targets.get("softmax-mean", 1, 16),
    "sort": pf.targets.get("sort", 1, 16),
    "block": target(transformer_block(2), 2, 6, EVIL),
    "layer norm": target(layer_norm),
    "no heads": target(COMPILES["gelu"]),
    "a constant": target(COMPILES["a constant"]),
}
ALL = {"certificate", "circuit", "attention", "units", "errors", "along"}
FIGURES = {
    "softmax-mean": ALL - {"units"},
    "sort": ALL - {"units"},
    "no heads": ALL - {"attention"},
    "a constant": {"certificate", "circuit", "along"},
}


@cache
def compiled(name: str) -> pf.CompiledCircuit:
    made = pf.compile(CASES[name], tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert isinstance(made, pf.CompiledCircuit)
    return made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    found = {}
    for name in CASES:
        folder = tmp_path_factory.mktemp("circuit")
        compiled(name).save(folder / "net")
        report(folder / "net", folder / "page.html", target=CASES[name])
        found[name] = Page((folder / "page.html").read_text())
    return found


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_loaded_and_names_are_text(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    assert not {tag for tag, _ in page.elements} & {"script", "link", "iframe", "object", "embed", "base"}
    for _, attributes in page.elements:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "href", "xlink:href"):
                assert str(value).startswith(("#", "data:image/png;base64,"))
    assert (EVIL in page.text) is False


@pytest.mark.parametrize("name", CASES)
def test_tables_and_figures_can_be_read_without_seeing_them(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["table"] == tags["caption"] > 3
    assert all(a.get("scope") in ("row", "col") for tag, a in page.elements if tag == "th")
    assert tags["figure"] == tags["figcaption"] == tags["svg"]
    assert all(len(a.get("aria-label") or "") > 20 for tag, a in page.elements if tag == "svg")
    ids = {a["id"] for _, a in page.elements if "id" in a}
    assert {(a["href"] or "").removeprefix("#") for tag, a in page.elements if tag == "a"} <= ids
    figures = {(a["id"] or "").removeprefix("figure-") for tag, a in page.elements if tag == "figure"}
    assert figures == FIGURES.get(name, ALL)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_library(name: str, pages: dict[str, Page]) -> None:
    page, c = pages[name], compiled(name)
    subject = CircuitSubject.of(c)
    found = find_circuit(subject)
    assert found.measured is not None
    assert found.values is not None
    for term, value in c.certificate.terms.items():
        assert page.row(term, 4)[0] == [value]
    for precision in ("float64", "float32"):
        if precision in c.certificate.bounds:
            assert page.row(precision, 4)[0] == [c.certificate.bounds[precision]]
        assert page.row(precision, 4)[2] == [found.measured.outputs[precision]]
    assert page.row("blocks") == [[c.network.blocks]]
    assert page.row("ReLU units") == [[sum(c.network.hidden_units.values())]]
    assert page.row("parameters") == [[c.network.parameters]]
    shown = {node.name for node in found.shown}
    for node, off in zip(subject.nodes, found.measured.nodes, strict=True):
        if node.name in shown:
            assert node.error is not None
            cells = page.row(node.name, 8)
            assert cells[4:] == [[node.error.float64], [off], [node.error.float32]]
            values = found.values.held[node.index, 0, :8].tolist()
            assert page.row(node.name, 1 + len(values)) == [[v] for v in values]
    assert page.row("network g" if c.target.token_dim == 1 else "network g, row 1") == [
        [v] for v in found.output[-1, :8].tolist()
    ]
    errors = [node.error.float64 for node in c.circuit.nodes if node.error is not None and node.kind == "output"]
    assert f"no entry is off by more than {upper(max(errors))}" in page.text


def test_a_function_that_is_another_is_not_confirmed(tmp_path: Path) -> None:
    compiled("layer norm").save(tmp_path / "net")
    other = target(lambda x: np.tanh(3 * x) + np.mean(x, axis=-1, keepdims=True))
    report(tmp_path / "net", tmp_path / "page.html", target=other)
    text = (tmp_path / "page.html").read_text()
    assert "The checker does not accept this network" in text or "more than the certificate states" in text
    assert "Derived again" not in text


def test_without_its_function_the_network_is_shown_alone(tmp_path: Path) -> None:
    compiled("layer norm").save(tmp_path / "net")
    report(tmp_path / "net", tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert "--target MODULE:FUNCTION" in page.text
    figures = {(a["id"] or "").removeprefix("figure-") for tag, a in page.elements if tag == "figure"}
    assert figures == {"certificate", "attention"}
    assert page.row("0", 3)  # blocks


def test_long_sequences_are_averaged_and_long_circuits_folded(tmp_path: Path) -> None:
    c = pf.compile(pf.targets.get("running-max", 1, 128), tolerance=1e-3, norm_order=np.inf, construction="circuit")
    assert isinstance(c, pf.CompiledCircuit)
    found = find_circuit(CircuitSubject.of(c))
    assert found.folded == ((1, 5),)
    assert [p.block for p in found.patterns] == [0, 6]
    assert all(p.weights.shape == (FINEST, FINEST) for p in found.patterns)
    assert all(np.allclose(p.weights.sum(axis=1), 1) for p in found.patterns)
    drawn = pictures(found)
    assert "128 tokens are averaged to 64" in drawn["attention"].caption
    assert "2 of 7 heads are drawn" in drawn["attention"].caption
    assert "Blocks 1 to 5 do what block 0 does" in drawn["circuit"].caption
    c.save(tmp_path / "net")
    report(tmp_path / "net", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1e6
    assert "blocks 1 to 5: as the block before" in (tmp_path / "page.html").read_text()


def test_averaging() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(100), size=100)
    small = averaged(weights, 7)
    assert small.shape == (7, 7)
    assert np.allclose(small.sum(axis=1), 1)
    assert np.array_equal(averaged(weights, 100), weights)


def test_a_page_takes_seconds(tmp_path: Path) -> None:
    compiled("softmax-mean").save(tmp_path / "net")
    report(tmp_path / "net", tmp_path / "page.html")  # what is imported is imported
    start = time.process_time()
    report(tmp_path / "net", tmp_path / "page.html")
    assert time.process_time() - start < 3


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine_for_a_report.py").write_text(
        "import numpy as np\ndef f(x):\n    return np.tanh(x - np.mean(x, axis=-1, keepdims=True))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["provenformer", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code
        return capsys.readouterr().out

    made = ["--construction", "circuit", "-n", "8", "--tolerance", "0.01", "--norm", "inf", "-o", "net"]
    run("compile", "mine_for_a_report:f", *made)
    run(
        "report", "net", "-o", "page.html", "--target", "mine_for_a_report:f", "--figures", "figures", "--format", "pdf"
    )
    text = (tmp_path / "page.html").read_text()
    assert "tanh(x - v1)" in text
    assert re.search("Derived again", text)
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert written == {"certificate.pdf", "circuit.svg", "attention.pdf", "units.pdf", "errors.pdf", "along.pdf"}
    assert b"prefers-color-scheme" in (tmp_path / "figures" / "circuit.svg").read_bytes()

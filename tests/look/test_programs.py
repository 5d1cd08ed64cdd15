"""Programs on tokens as report and explorer look at them, and the page about one: names, values, errors, sentences."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from report_cases import Page

import provenformer as pf
from provenformer import cli
from provenformer.look.circuit import measured, node_values
from provenformer.look.loading import load_subject
from provenformer.look.patterns import shown_patterns
from provenformer.look.programs import ProgramSubject
from provenformer.report import report

EVIL = "<b>$"


def mine(x: np.ndarray) -> np.ndarray:
    return x + 1


@pytest.mark.parametrize("name", ["sort-by-rank", "induction", "dyck-2", "histogram", "addition", "length"])
def test_values_and_errors_are_within_their_bounds(name: str) -> None:
    c = pf.compile_tokens(pf.programs.get(name, 4, 6))
    s = ProgramSubject.of_tokens(c)
    found = measured(s)
    assert found is not None
    assert found.sequences >= 200
    for precision, bound in c.certificate.bounds.items():
        assert found.outputs[precision] <= bound
    for node, error in zip(s.nodes, found.nodes, strict=True):
        assert node.error is not None
        assert error <= node.error.float64
        assert node.error.float32 < 0.25
    x = s.example()[None]
    values = node_values(s, x)
    assert (values.wanted == np.rint(values.wanted)).all()
    assert np.array_equal(values.held[0], x[:, 0])
    for pattern in shown_patterns(s, x[0]):
        assert pattern.looks.startswith("looks")
        assert pattern.tokens == tuple(str(int(v)) for v in x[0, 0])


def test_the_page_names_tokens_and_says_what_heads_do(tmp_path: Path) -> None:
    vocab = ["a", "b", "c", EVIL]
    c = pf.compile_tokens(pf.programs.reverse, vocab, 5)
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net", pf.TokenProgram(pf.programs.reverse, 4, 5))
    x = [*"abca", EVIL]
    program = pf.TokenProgram(pf.programs.reverse, 4, 5)
    report(tmp_path / "net", tmp_path / "page.html", target=program, sequence=c.encode(x))
    text = (tmp_path / "page.html").read_text()
    assert EVIL not in text
    page = Page(text)
    assert "every one of the 4^5 sequences of tokens is answered exactly" in page.text
    assert "looks at the mirrored token" in page.text
    assert "Derived again" in page.text
    assert c.circuit["v1"].error is not None
    assert page.row("v1", 8)[4] == [c.circuit["v1"].error.float64]
    assert page.row("parameters") == [[c.network.parameters]]
    figures = {(a["id"] or "").removeprefix("figure-") for tag, a in page.elements if tag == "figure"}
    assert figures == {"certificate", "circuit", "attention", "errors"}
    assert "5: &lt;b&gt;$" in text


def test_without_its_program_the_network_is_shown_alone(tmp_path: Path) -> None:
    pf.compile_tokens(mine, "abc", 4).save(tmp_path / "net")
    report(tmp_path / "net", tmp_path / "page.html")
    assert "--target MODULE:FUNCTION" in (tmp_path / "page.html").read_text()
    alone = load_subject(tmp_path / "net")
    assert isinstance(alone, ProgramSubject)
    with pytest.raises(pf.ProvenformerError, match="is not known"):
        node_values(alone, alone.example()[None])
    with pytest.raises(pf.ProvenformerError, match="was made from a program on tokens; give it a target"):
        load_subject(tmp_path / "net", pf.targets.get("sort", 1, 4))
    with pytest.raises(pf.ProvenformerError, match="for 3 tokens and n=4"):
        load_subject(tmp_path / "net", pf.TokenProgram(mine, 5, 4))
    with pytest.raises(pf.ProvenformerError, match="whole numbers from 0 to 2"):
        report(tmp_path / "net", tmp_path / "other.html", sequence=np.array([[0.0, 1.0, 2.5, 1.0]]))
    assert not (tmp_path / "other.html").exists()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["tokens", "induction", "-V", "4", "-n", "6", "-o", "net"], ["report", "net", "-o", "page.html"]):
        monkeypatch.setattr(sys, "argv", ["provenformer", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code
    assert "wrote page.html" in capsys.readouterr().out
    assert "What followed the own token" in (tmp_path / "page.html").read_text()

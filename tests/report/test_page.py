"""The page: self-contained, accessible, its numbers those of the library; the command and its refusals."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import thin
from look_cases import made, memorized
from report_cases import PAGES, Reported

import provenformer as pf
from provenformer import cli, demo
from provenformer.base.errors import ProvenformerError
from provenformer.look.subject import Subject
from provenformer.report import report
from provenformer.report.findings import find
from provenformer.report.pictures import pictures

Get = Callable[[str], Reported]
LOADS = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background", "formaction"}
ON_GRID = {"certificate", "stages", "cubes", "curve", "heatmaps", "error", "ids", "intervals", "bumps", "path"}


def figure_names(r: Reported) -> set[str]:
    ids = [attributes.get("id") or "" for tag, attributes in r.page.elements if tag == "figure"]
    return {name.removeprefix("figure-") for name in ids}


@pytest.mark.parametrize("kind", PAGES)
def test_nothing_is_loaded_from_elsewhere(kind: str, reported: Get) -> None:
    page = reported(kind).page
    assert not {tag for tag, _ in page.elements} & {"script", "link", "iframe", "object", "embed", "base"}
    for _, attributes in page.elements:
        for name, value in attributes.items():
            if name in LOADS:
                assert str(value).startswith(("#", "data:image/png;base64,")), (name, value)
            assert not re.search(r"url\((?!#)", str(value)), (name, value)
            assert not name.startswith("on")
    assert "url(" not in page.styles
    assert "@import" not in page.styles


@pytest.mark.parametrize("kind", PAGES)
def test_tables_and_figures_can_be_read_without_seeing_them(kind: str, reported: Get) -> None:
    page = reported(kind).page
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["table"] == tags["caption"] > 3
    assert all(a.get("scope") in ("row", "col") for tag, a in page.elements if tag == "th")
    assert tags["figure"] == tags["figcaption"] == tags["svg"] > 3
    assert all(len(a.get("aria-label") or "") > 20 for tag, a in page.elements if tag == "svg")
    ids = Counter(a["id"] for tag, a in page.elements if "id" in a and tag not in ("path", "clipPath", "image"))
    assert ids.most_common(1)[0][1] == 1
    targets = {(a["href"] or "").removeprefix("#") for tag, a in page.elements if tag == "a"}
    assert targets <= set(ids)


@pytest.mark.parametrize("kind", PAGES)
def test_numbers_are_those_of_the_library(kind: str, reported: Get) -> None:
    r = reported(kind)
    certificate, network = r.made.certificate, r.made.network
    assert f'<data value="{certificate.bound!r}">' in r.page.text
    if certificate.norm_order is not None:
        for name, value in certificate.terms.items():
            assert r.page.row(name, cells=4)[0] == [value]
    assert r.page.row("blocks") == [[network.blocks]]
    assert r.page.row("parameters") == [[network.parameters]]
    wide = kind == "wide rows"  # four blocks: what there is much of is hidden units
    for stage, size in (network.hidden_units if wide else network.stages).items():
        assert r.page.row(stage, cells=2) == [[size]]
    assert ("Stages, hidden units" in r.page.text) == wide
    x = r.subject.example()
    cells = r.subject.seq_len + 2
    final = "values: output" if wide else "clip"
    assert r.page.row(final, cells)[1:] == network(x[None])[0].T.tolist()
    if r.subject.target is not None:
        assert r.page.row("target", cells)[1:] == r.subject.target(x[None])[0].T.tolist()
    if isinstance(r.made, pf.Compiled):
        contexts = r.page.row("contexts")
        assert contexts == [[r.made.plan.contexts]]


def test_the_trace_on_the_page_is_the_exact_one(reported: Get) -> None:
    r = reported("paper")
    exact = {step.layer: step.floats()[0] for step in r.made.modified.trace(r.subject.example()[None], every="layer")}
    offset = len(thin(r.made.network).runs[0])  # the saved network first multiplies by N
    for label in ("shift at id 0", "shift at id 1", "last layer"):
        row = next(row for row in r.page.rows if row and row[0][0] == f"contextual map: {label}")
        done = int(row[1][0])
        assert [numbers for _, numbers in row[2:]] == (exact[done - offset] * 4).T.tolist()


@pytest.mark.parametrize("kind", PAGES)
def test_figures_that_apply_are_there(kind: str, reported: Get) -> None:
    expected = {
        "data": {"stages", "data", "ids", "intervals", "bumps", "path"},
        "opaque": ON_GRID - {"error"},
        "nothing distinct": (ON_GRID | {"leaps"}) - {"intervals", "bumps"},
        "paper": ON_GRID | {"leaps"},
    }.get(kind, ON_GRID)
    assert figure_names(reported(kind)) == expected


def test_what_was_asked(reported: Get) -> None:
    page = reported("sum").page
    assert page.row("tolerance") == [[0.15]]
    assert page.row("norm order, p") == [[2.0]]
    assert page.row("tokens, n") == [[3]]
    assert "no import path" in reported("opaque").page.text
    assert page.row("token outside the box") == [[], [], []]
    paper = reported("paper").page
    assert next(row for row in paper.rows if row[0][0] == "repeated token") == [
        ("repeated token", []), ("16", []), ("0", []), ("16", []),
    ]  # fmt: skip


def test_captions_say_what_is_left_out() -> None:
    c = pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=48)
    drawn = pictures(find(Subject.of(c)))
    assert "48 of 19,600 contexts are drawn" in drawn["ids"].caption
    assert "Cube edges are not drawn" in drawn["error"].caption
    assert "ids are shown" in drawn["bumps"].caption


def test_a_sequence_of_ones_own(tmp_path: Path) -> None:
    made("sum").save(tmp_path / "net")
    x = np.array([[0.11, 0.52, 0.93]])
    report(tmp_path / "net", tmp_path / "page.html", sequence=x)
    assert all(f'<data value="{v}">' in (tmp_path / "page.html").read_text() for v in x[0])
    with pytest.raises(ProvenformerError, match="X has shape"):
        report(tmp_path / "net", tmp_path / "page.html", sequence=np.zeros((2, 3)))


def test_the_page_of_the_default_network_is_small(tmp_path: Path) -> None:
    f = pf.targets.get(demo.TARGET, 1, demo.TOKENS)
    norm = float(pf.distance(f, np.zeros_like, token_dim=1, seq_len=demo.TOKENS))
    pf.compile(f, tolerance=demo.RELATIVE * norm, construction="sum").save(tmp_path / "net")
    report(tmp_path / "net", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 3e6


class TestCommand:
    @pytest.fixture
    def run(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., tuple[int, str]]:
        def call(*args: object) -> tuple[int, str]:
            monkeypatch.setattr(sys, "argv", ["provenformer", "report", *map(str, args)])
            with pytest.raises(SystemExit) as end:
                cli.main()
            said, code = capsys.readouterr(), int(str(end.value.code or 0))
            return code, said.err if code else said.out

        return call

    @pytest.mark.slow
    def test_figures_in_three_formats(self, run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
        made("data").save(tmp_path / "net")
        formats = [word for kind in ("svg", "png", "pdf") for word in ("--format", kind)]
        code, said = run(tmp_path / "net", "-o", tmp_path / "page.html", "--figures", tmp_path / "figures", *formats)
        assert code == 0
        assert "18 figures" in " ".join(said.split())  # the console wraps long lines
        starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
        for kind, start in starts.items():
            files = list((tmp_path / "figures").glob(f"*.{kind}"))
            assert len(files) == 6
            assert all(file.read_bytes().startswith(start) for file in files)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["{none}", "-o", "{page}"], "is it a saved network"),
            (["{net}", "-o", "{file}/page.html"], "cannot be written"),
            (["{net}", "-o", "{net}"], "is a folder"),
            (["{net}", "-o", "{page}", "--figures", "{file}"], "cannot be written"),
            (["{net}", "-o", "{page}", "--figures", "{none}", "--format", "gif"], "unknown format 'gif'"),
            (["{net}", "-o", "{page}", "--format", "pdf"], "give their folder with --figures"),
            (["{net}", "-o", "{page}", "--input", "{two}"], "follows one sequence and got 2"),
            (["{net}", "-o", "{page}", "--input", "{words}"], "cannot read sequences"),
            (["{net}", "-o", "{page}", "--input", "{file}"], "cannot read sequences"),
        ],
    )
    def test_bad_input_is_one_line_and_nothing_is_written(
        self, run: Callable[..., tuple[int, str]], tmp_path: Path, arguments: list[str], says: str
    ) -> None:
        made("data").save(tmp_path / "net")
        (tmp_path / "file").write_text("not a folder")
        shape = memorized().inputs.shape[1:]
        np.save(tmp_path / "two.npy", np.zeros((2, *shape)))
        np.save(tmp_path / "words.npy", np.full(shape, "word"))
        before = sorted(p.name for p in tmp_path.rglob("*"))
        places = {
            "none": tmp_path / "none",
            "net": tmp_path / "net",
            "page": tmp_path / "page.html",
            "file": tmp_path / "file",
            "two": tmp_path / "two.npy",
            "words": tmp_path / "words.npy",
        }
        code, said = run(*(word.format(**places) for word in arguments))
        assert code == 2
        assert says in said
        assert said.count("\n") == 1
        assert sorted(p.name for p in tmp_path.rglob("*")) == before

    def test_an_altered_folder_is_refused(self, run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
        made("data").save(tmp_path / "net")
        (tmp_path / "net" / "certificate.json").write_text("{}")
        code, said = run(tmp_path / "net", "-o", tmp_path / "page.html")
        assert (code, said.count("\n")) == (2, 1)
        assert not (tmp_path / "page.html").exists()

    @pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
    def test_a_missing_extra_is_named(
        self, run: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
    ) -> None:
        made("data").save(tmp_path / "net")
        for name in [name for name in sys.modules if name.startswith("provenformer.report.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        code, said = run(tmp_path / "net", "-o", tmp_path / "page.html")
        assert code == 2
        assert "provenformer[report]" in said
        assert package in said

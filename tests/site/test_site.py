"""The documentation site: code on every page runs and prints what the page says; it builds and loads nothing from elsewhere."""

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from examples import blocks, run_python

from provenformer import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HERE = [
    "circuits-howto.md",
    "explorer.md", "export.md", "findings.md", "index.md", "memorise.md", "own-function.md", "questions.md", "quickstart.md",
    "benchmark.md", "contextual.md", "lens.md", "programs.md", "report.md", "reproduce.md", "study.md", "tokens.md", "verify.md",
]  # fmt: skip
ELSEWHERE = {
    "certificates.md": "tests/site/test_pages.py",
    "numerics.md": "tests/site/test_pages.py",
    "sum.md": "tests/site/test_pages.py",
    "paper.md": "tests/site/test_docs.py",
    "targets.md": "tests/site/test_docs.py",
    "width.md": "tests/site/test_docs.py",
    "circuits.md": "tests/site/test_docs.py",
    "mixers.md": "test_mixers_page",
    "training.md": "test_training_page",
    "tour.md": "docs/conf.py",  # the strict build runs it for its pictures and compares what it prints
}


def test_every_page_with_code_is_run() -> None:
    """By this file or by another one that names it."""
    with_code = {page.name for page in DOCS.glob("*.md") if blocks(page)}
    assert with_code <= {*HERE, *ELSEWHERE}
    for page, file in ELSEWHERE.items():
        text = (ROOT / file).read_text() if file.endswith(".py") else Path(__file__).read_text()
        assert page in text, f"{file} does not run {page}"


def test_links_are_by_title_and_proofs_stand_under_proofs() -> None:
    """No file name as the text of a link, and no proof in a how-to."""
    how_to = re.search(r":caption: How to\n:hidden:\n(.*?)```", (DOCS / "index.md").read_text(), flags=re.DOTALL)
    assert how_to
    for page in DOCS.glob("*.md"):
        text = page.read_text()
        for name, target in re.findall(r"\[([^\]\n]+)\]\(([\w-]+\.md)(?:#[\w-]+)?\)", text):
            assert name not in (target, target.removesuffix(".md")), f"{page.name}: {name}"
        if page.stem in how_to[1].split():
            assert "∎" not in text, page.name


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Run shell lines of the forms [echo TEXT |] provenformer ARGUMENTS in this process, in tmp_path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # every command adds the current folder

    def run(code: str) -> None:
        for line in code.splitlines():
            echo, _, command = line.rpartition(" | ")
            words = shlex.split(command)
            assert words[0] == "provenformer", line
            monkeypatch.setattr(sys, "argv", words)
            monkeypatch.setattr(sys, "stdin", io.StringIO(shlex.split(echo)[1] if echo else ""))
            try:
                cli.main()
            except SystemExit as end:
                assert not end.code, line  # noqa: PT017

    return run


@pytest.mark.parametrize("page", HERE)
def test_code_prints_what_the_page_says(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: Callable[[str], None]
) -> None:
    """Python first, in one namespace, then the shell commands in the same folder, where they find its files."""
    run_python(DOCS / page, tmp_path)
    stated = {line.removeprefix("# ") for line in (DOCS / page).read_text().splitlines()}
    assert [line for line in capsys.readouterr().out.splitlines() if line not in stated] == []
    for block in blocks(DOCS / page):
        if block.language == "sh" and block.reason is None:
            shell(block.code)


def test_mixers_page() -> None:
    """mixers.md, on torch's meta device: BERT_BASE has 110 million weights, and only their shapes matter here."""
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        names = {"hidden": torch.zeros(2, 9, 768), "mask": torch.ones(2, 9)}
        run_python(DOCS / "mixers.md", ROOT, names)
    assert names["mixed"].shape == (2, 9, 768)
    assert type(names["model"].bert.encoder.layer[0].attention.self).__name__ == "MixerSlot"


def test_mixers_page_from_start_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: Callable[[str], None]
) -> None:
    """mixers.md: swap, fine-tune, save, load; the accuracy is the same three times; the Trainer's model comes back."""
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    made, commands, used, by_trainer = (
        b for b in blocks(DOCS / "mixers.md") if b.reason and "from_start_to_end" in b.reason
    )
    with contextlib.chdir(tmp_path):
        exec(made.code, {})
        shell(commands.code)
        exec(used.code, {})
        printed, names = capsys.readouterr().out, dict[str, Any]()
        exec(by_trainer.code, names)
        left, back = names["trainer"].model.state_dict(), names["model"].state_dict()
        assert all(torch.equal(left[name], back[name]) for name in back)
    trained, *evaluated, counted = printed.strip().split("\n")
    found = float(trained.split()[1].rstrip(","))
    assert found > 0.9
    assert float(counted) == pytest.approx(found, abs=5e-5)
    assert json.loads("\n".join(evaluated[1:]))["accuracy"] == pytest.approx(found, abs=5e-5)


def test_training_page(tmp_path: Path, shell: Callable[[str], None]) -> None:
    """training.md: the first commands, from text to a prepared corpus; tests/bert has pre-training and fine-tuning."""
    first = next(b for b in blocks(DOCS / "training.md") if b.language == "sh")
    assert first.reason is None
    preparing = [line for line in first.code.splitlines() if " sample " in line or " prepare " in line]
    assert len(preparing) == 3
    shell("\n".join(preparing))
    assert (tmp_path / "sample" / "valid-data" / "manifest.json").is_file()


def test_readme_examples_about_mixers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of the README; the first two are run by tests/site/test_docs.py."""
    torch = pytest.importorskip("torch")
    bert = pytest.importorskip("provenformer.bert")
    last = [b for b in blocks(ROOT / "README.md") if b.language == "python"][-1]
    monkeypatch.chdir(tmp_path)
    small = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 32}
    model = bert.MixerBertForMaskedLM(bert.MixerBertConfig(vocab_size=50, **small)).eval()
    found = {"any_bert_family_model": model}
    exec(last.code, found)
    tokens = torch.arange(9)[None]
    assert torch.equal(found["model"](tokens).logits, model(tokens).logits)


class Resources(HTMLParser):
    """What a browser fetches by itself: not the links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "image", "use"):
            self.found += [str(v) for k, v in attributes if k in ("src", "srcset", "href", "xlink:href")]
        elif tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "prefetch"):
            self.found.append(str(named.get("href")))


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="needs sphinx: pip install 'provenformer[docs]'")
def test_strict_build_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """`make docs`, and every page, style sheet and picture of it."""
    recipe = re.search(r"-m (sphinx .*)", (ROOT / "Makefile").read_text())
    assert recipe
    assert {"-W", "-n", "--keep-going"} <= set(recipe[1].split())
    command = recipe[1].replace("build/", f"{tmp_path}/build/").split()
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    site = tmp_path / "build" / "docs"
    pages = list(site.glob("*.html"))
    assert len(pages) > 20
    for page in pages:
        parser = Resources()
        parser.feed(page.read_text())
        assert [r for r in parser.found if re.match(r"(\w+:)?//", r)] == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(\w+:)?//", style.read_text()), style.name
    tour = (site / "tour.html").read_text()
    assert tour.count("<svg") >= tour.count('class="picture"') >= 10
    api = (site / "api.html").read_text()
    import provenformer

    for name in provenformer.__all__:
        assert f'id="provenformer.{name}' in api, name
    with contextlib.suppress(ModuleNotFoundError):
        from provenformer import bert

        for name in bert.__all__:
            assert f'id="provenformer.bert.{name}"' in api, name

"""`provenformer contextual`: a saved model in, page, table, figures and JSON out."""

import json
import re
from pathlib import Path

import pytest
from contextual_cases import mixer_bert
from typer.testing import CliRunner

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.vocabulary import SPECIAL, Vocabulary
from provenformer.cli import app
from provenformer.contextual.samples import sentences
from provenformer.contextual.senses import sample

TEXT = " ".join(["I am happy Bob money", *sentences(), *(one.sentence for one in sample())])
WORDS = re.findall(r"\w+|[^\w\s]", TEXT.lower())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a vocabulary of the words of the library's sentences, and of letters."""
    folder = tmp_path_factory.mktemp("model")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = [*SPECIAL, *dict.fromkeys([*WORDS, *letters, *(f"##{c}" for c in letters)])]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    model = mixer_bert("attention", seed=5, vocab_size=len(words), max_position_embeddings=128)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    assert Vocabulary.load(folder / "vocab.txt", True)
    return folder


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["contextual", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_everything_is_written(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = run(saved, "-o", out)
    assert "edits, distances over r" in shown
    assert sorted(path.name for path in out.rglob("*.*")) == [
        "contextual.json", "example.svg", "index.html", "reach.svg", "senses.svg", "separation.svg", "table.md", "word.svg",
    ]  # fmt: skip
    found = json.loads((out / "contextual.json").read_text())
    assert found["measurement"]["sequences"] == len(sentences())
    assert len(found["senses"]) == 3
    page = (out / "index.html").read_text()
    for part in (
        "Is ",
        "one-word edit",
        "random weights",
        "[CLS]".replace("[CLS]", "read by the model, not measured"),
        "Section 5.2",
    ):
        assert part in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "| embeddings |" in (out / "table.md").read_text()


def test_text_of_ones_own_and_json(saved: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The river of the bank.\nA bank of money.\n\nno\nI am happy, I am Bob.\nMoney of the river.\n")
    found = json.loads(run(saved, "--text", text, "-o", tmp_path / "out", "--json", "--mode", "swaps"))
    assert found["measurement"]["sequences"] == 4
    assert list(found["measurement"]["model"]["modes"]) == ["swaps"]
    assert found["text"] == "text.txt"


def test_bad_input_leaves_nothing(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\none\n")
    for arguments, said in (
        (("--text", empty), "has 0 lines of at least 3 words"),
        (("--text", tmp_path / "none.txt"), "cannot read"),
        (("--word", "zebra"), "--word zebra has no sentences"),
        (("--mode", "moods"), "unknown mode 'moods'"),
        (("--memory", "0.00001"), "give less text"),
        (("--sentences", "1"), "--sentences must be at least 2"),
    ):
        with pytest.raises(ProvenformerError, match=said):
            run(saved, "-o", out, *arguments)
    with pytest.raises(ProvenformerError):
        run(tmp_path, "-o", out)
    assert not out.exists()
    assert len(sample()) == 96

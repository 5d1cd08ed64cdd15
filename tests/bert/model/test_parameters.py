"""Parameter counts at BERT_BASE size, on the meta device, and the command that prints them."""

import json
import subprocess
import sys

import pytest
from transformers import BertForMaskedLM
from typer.testing import CliRunner

from provenformer.bert import MixerBertConfig
from provenformer.bert.model.parameters import count_parameters, parameter_table
from provenformer.cli.bert import app

ATTENTION, PER_SWAPPED_LAYER = 109_514_298, 588_544
COUNTS = {
    "average": 88_252_986,
    "bproj": 91_398_714,
    "bproj, size 384": 90_022_458,
    "sepconv": 102_451_770,
    "attention": ATTENTION,
}


def test_counts_of_the_paper() -> None:
    table = {row.model: row.count for row in parameter_table()}
    assert {name: table[name] for name in COUNTS} == COUNTS


@pytest.mark.parametrize("swapped", [0, 1, 2, 5, 12])
def test_hybrids_lose_the_same_with_every_layer(swapped: int) -> None:
    assert count_parameters(MixerBertConfig.hybrid(sepconv=swapped)) == ATTENTION - PER_SWAPPED_LAYER * swapped


def test_attention_counts_as_transformers_does() -> None:
    import torch

    with torch.device("meta"):
        stock = BertForMaskedLM(MixerBertConfig.bert_base())
    assert sum(parameter.numel() for parameter in stock.parameters()) == ATTENTION


def test_params_prints_ours_beside_the_papers() -> None:
    lines = CliRunner().invoke(app, ["params"]).output.splitlines()
    assert any("sepconv" in line and "102,451,770" in line and "102.5M" in line for line in lines)
    rows = json.loads(CliRunner().invoke(app, ["params", "--json"]).output)
    assert {"model": "attention", "count": ATTENTION, "paper": "110M", "note": "BERT_BASE"} in rows


def test_claims_prints_and_succeeds() -> None:
    result = CliRunner().invoke(app, ["claims", "--json"])
    assert result.exit_code == 0
    assert all(claim["holds"] for claim in json.loads(result.output))


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['provenformer', '--help']\nfrom provenformer.cli import main\n"
        "try: main()\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules)"
    )
    result = run(code)
    assert result.returncode == 0
    assert "bert" in result.stdout


def test_without_torch_one_line_names_the_extra() -> None:
    # A finder that hides torch; None in sys.modules would confuse libraries that look there for it.
    code = (
        "import sys\nclass Hide:\n    def find_spec(self, name, *_):\n        if name == 'torch':\n"
        "            raise ModuleNotFoundError('hidden', name='torch')\nsys.meta_path.insert(0, Hide())\n"
        "sys.argv = ['provenformer', 'bert', 'params']\nfrom provenformer.cli import main; main()"
    )
    result = run(code)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "needs torch, which is not installed; pip install 'provenformer[bert]'" in result.stderr

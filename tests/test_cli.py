"""The command line: every command, JSON that parses, exit codes 0, 1, 2, one line for an error, nothing half-written."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import forge

import provenformer as pf
from provenformer import cli
from provenformer.cli.wording import in_options


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`provenformer ARGS`, in this process, through the entry point itself."""

    def call(*args: object, stdin: str = "") -> Result:
        monkeypatch.setattr(sys, "argv", ["provenformer", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        return Result(int(str(code or 0)), captured.out, captured.err)

    return call


@pytest.fixture
def net(tmp_path: Path) -> Path:
    pf.compile(pf.targets.get("scaled-mean", 1, 2), cells_per_axis=4).save(tmp_path / "net")
    return tmp_path / "net"


def test_compile_verify_run_distance(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    done = run("compile", "softmax-mean", "-n", 2, "--tolerance", 0.1, "-o", folder, "--json")
    assert done.code == 0
    assert done.json["certificate"]["bound"] <= 0.1
    assert done.json["folder"] == str(folder)
    assert run("verify", folder).code == 0
    report = run("verify", folder, "--json")
    assert report.code == 0
    assert report.json["ok"] is True
    y = run("run", folder, "--json", stdin="[[[0.2, 0.9]]]")
    assert y.code == 0
    np.testing.assert_array_equal(y.json, pf.load(folder).network(np.array([[[0.2, 0.9]]])))
    assert "0.2" in run("run", folder, stdin="[[0.2, 0.9]]").out
    measured = run("distance", folder, "--samples", 4096, "--json")
    assert measured.code == 0
    assert measured.json["value"] <= measured.json["bound"]
    assert "certified" in run("distance", folder, "--samples", 4096).out


def test_human_output_says_the_certificate(run: Run, tmp_path: Path) -> None:
    done = run("compile", "scaled-mean", "-n", 2, "-N", 4, "-o", tmp_path / "net")
    assert done.code == 0
    assert "rigorous" in done.out
    assert "verify" in done.out
    assert "holds" in run("verify", tmp_path / "net").out


def test_options_reach_compile(run: Run) -> None:
    done = run(
        "compile",
        "centered",
        "-d",
        2,
        "-n",
        2,
        "-N",
        2,
        "-p",
        1,
        "--construction",
        "paper",
        "--support",
        "-1,1",
        "--json",
    )
    assert done.code == 0
    assert done.json["plan"]["construction"] == "paper"
    assert done.json["plan"]["token_dim"] == 2
    assert done.json["certificate"]["norm_order"] == 1


def test_plan_targets_trace_demo(run: Run) -> None:
    plan = run("plan", "-d", 2, "-n", 3, "-N", 16, "--json").json
    assert plan["blocks"] == pf.plan(2, 3, 16).blocks
    assert run("plan").code == 0
    names = [entry["name"] for entry in run("targets", "--json").json]
    assert names == list(pf.targets.names())
    assert "softmax-mean" in run("targets").out
    steps = run("trace", "scaled-mean", "-n", 2, "--json", stdin="[[[0.2, 0.9]]]").json
    assert steps[-1]["layer"] > steps[0]["layer"]
    assert run("trace", "scaled-mean", "-n", 2, "--every", "layer", stdin="[[[0.2, 0.9]]]").code == 0


def test_a_circuit_by_default_and_the_reason(run: Run, tmp_path: Path) -> None:
    wanted = ["scaled-mean", "-n", 64, "--tolerance", 1e-3, "--norm", "inf"]
    planned = run("plan", *wanted, "--json").json
    done = run("compile", *wanted, "-o", tmp_path / "net", "--json").json
    assert done["choice"] == planned["choice"] == "circuit, because its formula could be followed"
    assert done["plan"] == planned
    assert done["certificate"]["norm_order"] is None
    assert done["certificate"]["bound"] <= 1e-3
    assert run("verify", tmp_path / "net").code == 0
    for shown in (run("compile", *wanted).out, run("plan", *wanted).out):
        assert "construction: circuit, because" in shown
        assert "parameters" in shown
    table = run("compile", "scaled-mean", "-n", 2, "-N", 4)
    assert "construction: sum, because circuits have no cells_per_axis" in table.out


def test_memorize(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5, 1, 3))
    (tmp_path / "pairs.json").write_text(json.dumps({"inputs": x.tolist(), "outputs": y.tolist()}))
    np.savez(tmp_path / "pairs.npz", inputs=x, outputs=y)
    for name in ("pairs.json", "pairs.npz"):
        done = run("memorize", tmp_path / name, "-o", tmp_path / "net", "--json")
        assert done.code == 0
        assert done.json["certificate"]["bound"] <= 1e-6
        assert run("verify", tmp_path / "net").code == 0
    assert run("memorize", tmp_path / "pairs.npz", "-o", tmp_path / "net", "--positional").code == 0


def test_sequences_from_files(run: Run, net: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).random((3, 1, 2))
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.json").write_text(json.dumps(x.tolist()))
    expected = pf.load(net).network(x)
    for name in ("x.npy", "x.json"):
        np.testing.assert_array_equal(run("run", net, "-i", tmp_path / name, "--json").json, expected)


def test_functions_by_import_path(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_target_module.py").write_text("def half(x):\n    return 0.5 * x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    done = run("compile", "my_target_module:half", "-n", 2, "-N", 4, "-o", tmp_path / "net", "--json")
    assert done.code == 0
    assert done.json["certificate"]["kind"] == "rigorous"
    # The folder names the function, but only a name that the user types, or --trust-target, imports it.
    unnamed = run("verify", tmp_path / "net")
    assert unnamed.code == 2
    assert "--target" in unnamed.err
    assert "--trust-target" in unnamed.err
    named = run("verify", tmp_path / "net", "--target", "my_target_module:half")
    assert named.code == 0
    assert "the function you gave" in named.out
    trusted = run("verify", tmp_path / "net", "--trust-target", "--json")
    assert trusted.code == 0
    assert "my_target_module:half, which the folder names" in trusted.json["claim"]["whose"]
    assert run("verify", tmp_path / "net", "--target", "centered").code == 1
    assert run("distance", tmp_path / "net").code == 2
    assert run("distance", tmp_path / "net", "--samples", 512, "--target", "my_target_module:half").code == 0
    assert run("compile", "my_target_module:nothing", "-n", 2, "-N", 4).code == 2


def test_a_folder_supplies_no_facts_about_the_function_that_you_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's manifest may say what it likes of the function: only what the user says of it counts, and is printed."""
    (tmp_path / "my_facts_module.py").write_text(
        "import numpy as np\n\ndef half(x):\n    return 0.5 * x\n\n"
        "def box(x):\n    return np.asarray([v * 1.0 for v in x])\n\n"  # a loop: neither intervals nor slopes
        "def bump(x):\n    return 0.1 * np.sin(np.pi * x) * np.min(np.sin(np.pi * x), axis=(-2, -1), keepdims=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    net = tmp_path / "net"
    named = ("verify", net, "--target")
    # Equivariance: assumed, since the network has no positions, and said so.
    assert run("compile", "my_facts_module:half", "-n", 2, "-N", 4, "-o", net).code == 0
    assert "is assumed by you, not proved" in run(*named, "my_facts_module:half").out
    done = run("compile", "my_facts_module:half", "-n", 2, "-N", 4, "-o", net, "--vouched")
    assert "--target my_facts_module:half --vouched" in done.out
    assert "in one order of its tokens only" in run(*named, "my_facts_module:half", "--vouched").out
    assert "in one order of its tokens only" not in run(*named, "my_facts_module:half").out
    assert run("verify", net, "--vouched").code == 2
    # A Lipschitz constant: the folder's does not count.
    done = run("compile", "my_facts_module:box", "-n", 2, "-N", 4, "-o", net, "--lipschitz", 1)
    assert "--target my_facts_module:box --lipschitz 1.0" in done.out
    assert run(*named, "my_facts_module:box").code == 2
    assert "Lipschitz" in run(*named, "my_facts_module:box").err
    vouched = run(*named, "my_facts_module:box", "--lipschitz", 1)
    assert vouched.code == 0
    assert "The constant is 1, declared by you" in vouched.out
    assert "declared by the folder" in run("verify", net, "--trust-target").out
    assert run("verify", net, "--lipschitz", 1).code == 2
    # That it vanishes outside its box.
    import my_facts_module  # type: ignore[import-not-found]

    f = pf.Target(my_facts_module.bump, 1, 2, name="my_facts_module:bump", vanishes_outside=True)
    pf.compile(f, cells_per_axis=4).save(net)
    assert pf.load(net).certificate.domain == "space"
    rejected = run(*named, "my_facts_module:bump")
    assert rejected.code == 1
    assert "does not vanish" in rejected.out
    vouched = run(*named, "my_facts_module:bump", "--vanishes-outside")
    assert vouched.code == 0
    assert "is declared by you, not proved" in vouched.out


@pytest.mark.parametrize("text", ["1 / 0", "def half(x:", "raise SystemExit(3)", "half = 5", "import no_such_thing"])
def test_modules_that_do_not_import(run: Run, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_broken_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_broken_module", raising=False)
    done = run("compile", "my_broken_module:half", "-n", 2, "-N", 4)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def test_the_current_folder_is_not_on_the_path(net: Path, tmp_path: Path) -> None:
    """A folder of data from a stranger with a numba.py or scipy.py in it: nothing of it runs, whatever the command."""
    for name in ("numba", "scipy", "onnx"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w').close()\n")
    (tmp_path / "x.json").write_text("[[0.2, 0.9]]")
    # As the installed command starts: without the current folder, in which later imports would look, too.
    program = """
import sys
sys.path.pop(0)
from provenformer.cli import main
try:
    main()
finally:
    assert not {"", "."} & set(sys.path), sys.path
    import numba, onnx, scipy
"""
    for arguments in (
        ["run", net, "-i", "x.json", "--json"],
        ["verify", net],
        ["distance", net, "--samples", 64],
        ["targets"],
    ):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert list(tmp_path.glob("ran-*")) == []


def test_exit_code_1_when_a_bound_does_not_hold(run: Run, net: Path) -> None:
    bound = pf.load(net).certificate.bound
    forge(net, certificate={"bound": bound / 2})
    rejected = run("verify", net)
    assert rejected.code == 1
    assert "rejected" in rejected.out
    assert run("verify", net, "--json").json["ok"] is False


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "no-such-target", "-N", "4"],
        ["compile", "scaled-mean"],
        ["compile", "scaled-mean", "-N", "4", "--tolerance", "0.1"],
        ["compile", "scaled-mean", "--tolerance", "0"],
        ["compile", "scaled-mean", "--tolerance", "-1"],
        ["compile", "scaled-mean", "--tolerance", "nan"],
        ["compile", "scaled-mean", "--tolerance", "1e-13"],
        ["compile", "scaled-mean", "-N", "1"],
        ["compile", "scaled-mean", "-N", "4", "-n", "1"],
        ["compile", "scaled-mean", "-N", "4", "-p", "0"],
        ["compile", "scaled-mean", "-N", "4", "--construction", "magic"],
        ["compile", "scaled-mean", "-N", "4", "--support", "1,0"],
        ["compile", "scaled-mean", "-N", "4", "--support", "x"],
        ["compile", "os:getcwd", "-N", "4"],
        ["compile", "no_such_module:f", "-N", "4"],
        ["compile", "softmax-mean", "--tolerance", "0.05", "--construction", "paper"],
        ["verify", "nowhere"],
        ["run", "nowhere"],
        ["distance", "nowhere"],
        ["memorize", "nowhere.json", "-o", "net"],
        ["plan", "-N", "0"],
        ["plan", "scaled-mean", "--tolerance", "0.1", "--depth", "25"],
        ["compile", "scaled-mean", "--tolerance", "0.1", "--norm", "inf", "--depth", "-1"],
        ["compile", "scaled-mean", "-N", "4", "--depth", "3"],
        ["compile", "scaled-mean", "--tolerance", "1e-5", "--norm", "inf", "--max-units", "100"],
        ["plan", "--tolerance", "0.1"],
        ["plan", "--construction", "circuit"],
        ["plan", "centered", "--construction", "sum", "--tolerance", "0.1"],
        ["plan", "centered", "--tolerance", "0.1", "-p", "0.5"],
        ["compile", "scaled-mean", "--tolerance", "0.1", "--norm", "inf", "--construction", "sum"],
        ["trace", "scaled-mean", "-n", "2", "--every", "moon"],
        ["run"],
        ["no-such-command"],
        ["compile", "scaled-mean", "-N", "many"],
    ],
)
def test_errors_are_short_and_exit_with_2(
    run: Run, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    extra = ["-o", str(tmp_path / "out")] if arguments[0] == "compile" else []
    done = run(*arguments, *extra, stdin="[[[0.2, 0.9]]]")
    assert done.code == 2
    assert "Traceback" not in done.err + done.out
    assert done.err.strip()
    if done.err.startswith("error:"):
        assert len(done.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "not json", "[1, 2]", '[["a", "b"]]', "[[[0.1, 0.2, 0.3]]]", "{}", "[[[NaN, 0.1]]]"]
)
def test_bad_sequences(run: Run, net: Path, text: str) -> None:
    done = run("run", net, stdin=text)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[[1" + "0" * 400 + ", 1]]", '[["a"]]', "[[1, [2]]]", "[[true, null]]", "\x00"]
)
def test_sequences_beyond_reason(run: Run, net: Path, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    (tmp_path / "x.npy").write_text(text)
    for source in ("-", tmp_path / "x.json", tmp_path / "x.npy"):
        done = run("run", net, "-i", source, stdin=text)
        assert done.code == 2
        assert len(done.err.strip().splitlines()) == 1
    (tmp_path / "x.npz").write_text(text)
    for source in ("x.json", "x.npz"):
        done = run("memorize", tmp_path / source, "-o", tmp_path / "memory")
        assert done.code == 2
        assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "-N", "9" * 30], ["plan", "-N", "10", "-d", "100", "-n", "100"], ["plan", "-d", "9" * 40],
        ["compile", "centered", "-N", "9" * 30], ["compile", "centered", "-N", "3", "-d", "9" * 9],
        ["compile", "centered", "-N", "3", "-p", "nan"], ["compile", "centered", "-N", "3", "-p", "inf"],
        ["compile", "centered", "-N", "3", "--hidden-dim", str(2**45)], ["compile", "centered", "-N", "3", "--lipschitz", "nan"],
        ["compile", "centered", "-N", "3", "--support", "0,inf"], ["compile", "centered", "-N", "3", "--support", "0,1,2"],
        ["compile", "centered", "--tolerance", "inf"], ["compile", "centered", "--tolerance", "1e-300"],
        ["compile", ":", "-N", "3"], ["compile", "builtins:exec", "-N", "3"], ["compile", "os:sep", "-N", "3"],
        ["compile", "a b:c", "-N", "3"], ["compile", "..:x", "-N", "3"], ["compile", "centered[/b]", "-N", "3"],
        ["compile", "c\x1b[31m", "-N", "3"], ["compile", "\udcff", "-N", "3"],
        ["verify", "."], ["verify", "/dev/null"], ["verify", "/"], ["verify", "a" * 5000], ["verify", "[red]x[/b]"],
        ["run", "."], ["distance", "NET", "--samples", "0"], ["distance", "NET", "--samples", "-3"],
        ["distance", "NET", "-p", "nan"],
        ["distance", "NET", "--target", "nothing"], ["verify", "NET", "--target", "no_such:f"], ["verify", "NET", "--target", ""],
        ["trace", "centered", "-N", "0"], ["report", "nowhere"], ["memorize", ".", "-o", "x"],
        ["memorize", "/dev/null", "-o", "x"],
        ["explore", "--port", "-1"], ["explore", "--port", "99999"],
    ],
)  # fmt: skip
def test_odd_commands_end_in_one_line(
    run: Run, arguments: list[str], net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = run(*(str(net) if a == "NET" else a for a in arguments), stdin="[[[0.2, 0.9]]]")
    assert "Traceback" not in done.err + done.out
    if done.code:
        assert done.code == 2
        assert done.err.strip()
        assert "\x1b" not in done.err
        assert not done.err.startswith("error:") or len(done.err.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


# Names are only names.


@pytest.mark.parametrize("name", ["net[/b]", "a[red]b", "[green]holds[/green]", ":smile:"])
def test_markup_in_the_name_of_a_folder(run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("compile", "centered", "-n", 2, "-N", 2, "-o", f"x{name.replace('/', '')}")
    assert done.code == 0
    assert f"saved to x{name.replace('/', '')};" in done.out
    assert run("verify", f"nowhere{name}").code == 2


@pytest.mark.parametrize(
    "stage", ["x[/nope]", "[green]holds[/green]", "x)\n[green]holds[/green]: all is well", "\x1b[8m(", "\ud800"]
)
def test_a_stage_cannot_spoof_a_verdict(run: Run, net: Path, stage: str) -> None:
    runs = [{**r, "stage": stage} for r in pf.load(net).manifest["runs"]]
    forge(net, certificate={"ramp": pf.load(net).certificate.ramp / 2}, manifest={"runs": runs})
    done = run("verify", net)
    assert done.code in (1, 2)
    assert "\x1b" not in done.out + done.err
    first = (done.out + done.err).splitlines()[0]
    assert first.startswith(("rejected: ", "error: "))
    assert not any(line.startswith("holds") for line in done.out.splitlines())


def test_verify_states_the_claim(run: Run, net: Path, tmp_path: Path) -> None:
    done = run("verify", net)
    for part in (
        "holds: ",
        "claim:  d_2(f, g) <= ",
        "the box [0, 1]",
        "target: scaled-mean (built in",
        "basis:  rigorous",
    ):
        assert part in done.out, part
    claim = run("verify", net, "--json").json["claim"]
    assert (claim["domain"], claim["norm_order"], claim["kind"]) == ("box", 2, "rigorous")
    x, y = np.random.default_rng(0).random((2, 5, 1, 3))
    pf.memorize(x, y).save(tmp_path / "memory")
    assert "on the 5 stored pairs only" in run("verify", tmp_path / "memory").out


def test_an_altered_folder_does_not_run(run: Run, net: Path) -> None:
    content = (net / "network.safetensors").read_bytes()
    (net / "network.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = run("run", net, stdin="[[[0.2, 0.9]]]")
    assert done.code == 2
    assert "altered" in done.err


def test_saving_over_something_else_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("a")
    done = run("compile", "scaled-mean", "-n", 2, "-N", 4, "-o", tmp_path / "mine")
    assert done.code == 2
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["a.txt"]


def test_help(run: Run) -> None:
    assert "compile" in run("--help").out
    for command in ("compile", "plan", "run", "verify", "trace", "memorize", "targets", "distance", "demo"):
        assert run(command, "--help").code == 0


# The first hour.


def test_version_and_what_the_tool_does(run: Run) -> None:
    assert run("--version").out.strip() == f"provenformer {pf.__version__}"
    about = " ".join(run("--help").out.split())
    for part in ("without training", "certificate", "`verify`", "`plan`", "`bert`"):
        assert part in about


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compile", "scaled-mean"], "give either --tolerance or --cells, and not both|--tolerance None"),
        (["compile", "scaled-mean", "-N", "1"], "--cells 1"),
        (["compile", "scaled-mean", "-N", "4", "-p", "0"], "--norm 0.0 is outside"),
        (["compile", "scaled-mean", "-N", "4", "--hidden-dim", "6"], "--hidden-dim 6 is not"),
        (["compile", "scaled-mean", "-N", "4", "--construction", "magic"], "magic"),
        (["plan", "scaled-mean", "--tolerance", "0.1", "--depth", "25"], "--depth 25 is outside"),
        (["compile", "scaled-mean", "--tolerance", "-1"], "--tolerance -1.0 is not a positive number"),
        (["distance", "NET", "--samples", "3"], "--samples 3 is below"),
    ],
)
def test_errors_have_the_names_of_options(run: Run, arguments: list[str], said: str, net: Path) -> None:
    done = run(*(str(net) if a == "NET" else a for a in arguments))
    assert done.code == 2
    assert re.search(said, done.err), done.err
    assert not re.search(r"cells_per_axis|norm_order|hidden_dim|max_units|\w=\d", done.err), done.err


def test_words_of_the_library_and_words_of_the_command_line() -> None:
    said = "tolerance=0.01 needs cells_per_axis=4, support=(0.0, 1.0); use a larger tolerance, construction='sum' or np.inf."
    assert in_options(said) == (
        "--tolerance 0.01 needs --cells 4, --support 0.0,1.0; use a larger tolerance, --construction sum or inf."
    )


def test_distance_is_in_the_norm_of_the_network(run: Run, net: Path, tmp_path: Path) -> None:
    out = run("distance", net, "--samples", 256).out
    assert out.startswith("d_2 = ")
    assert "certified: d_2 <= " in out
    assert run("distance", net, "--samples", 256, "-p", 1).out.splitlines()[1].startswith("certified: d_2 <= ")
    circuit = tmp_path / "circuit"
    run("compile", "scaled-mean", "-n", 4, "--tolerance", 0.1, "--norm", "inf", "-o", circuit)
    assert "certified: sup |f - g| <= " in run("distance", circuit, "--samples", 256).out
    found = run("distance", circuit, "--samples", 256, "--json").json
    assert found["norm"] == found["bound_norm"] == "inf"
    assert 0 <= found["value"] <= found["bound"]


def test_run_says_when_the_certificate_is_not_about_an_input(run: Run, net: Path) -> None:
    inside = run("run", net, stdin="[[[0.2, 0.9]]]")
    assert inside.err == ""
    outside = run("run", net, "--json", stdin="[[[0.2, 0.9]], [[0.2, 1.1]]]")
    assert "1 of 2 sequences lie outside the box [0, 1]" in outside.err
    assert len(outside.json) == 2


def test_run_at_a_terminal_says_what_it_waits_for(net: Path) -> None:
    """In a pseudo-terminal, as a person would call it."""
    program = "from provenformer.cli import main; main()"
    master, slave = os.openpty()
    command = [sys.executable, "-c", program, "run", str(net), "--json"]
    with subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        os.close(slave)
        os.write(master, b"[[[0.2, 0.9]]]\n\x04")
        out, err = running.communicate(timeout=120)
    os.close(master)
    assert "waiting for sequences as JSON" in err
    assert len(json.loads(out)) == 1


def test_kind(run: Run) -> None:
    done = run("compile", "scaled-mean", "-n", 2, "-N", 4, "--kind", "lipschitz", "--json")
    assert done.json["certificate"]["kind"] == "lipschitz"
    assert run("compile", "scaled-mean", "-n", 2, "-N", 4, "--kind", "certain").code == 2


def test_bert_helps_without_torch() -> None:
    hide = (
        "import sys\nclass Hide:\n    def find_spec(self, name, *_):\n        if name == 'torch':\n"
        "            raise ModuleNotFoundError('hidden', name='torch')\nsys.meta_path.insert(0, Hide())\n"
    )
    for arguments, code in ((["bert", "--help"], 0), (["bert", "finetune", "--help"], 0), (["bert", "params"], 2)):
        program = f"{hide}sys.argv = {['provenformer', *arguments]}\nfrom provenformer.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    assert done.stderr.strip().endswith("needs torch, which is not installed; pip install 'provenformer[bert]'")
    done = subprocess.run(
        [sys.executable, "-c", hide + "import provenformer.bert"], capture_output=True, text=True, check=False
    )
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("provenformer.bert needs torch, which is not installed; pip install 'provenformer[bert]'")
    )


def test_tokens(run: Run, tmp_path: Path) -> None:
    done = run("tokens", "sort", "-V", 4, "-n", 6, "-o", tmp_path / "net")
    assert done.code == 0
    assert "looks at all tokens alike" in done.out
    assert "exact on all 4^6 sequences" in done.out
    assert run("verify", tmp_path / "net").code == 0
    assert run("verify", tmp_path / "net", "--target", "reverse").code == 1
    assert run("report", tmp_path / "net", "-o", tmp_path / "page.html").code == 0
    other = run("report", tmp_path / "net", "--target", "reverse", "-o", tmp_path / "page.html")
    assert other.code == 0
    assert "The checker does not accept this network" in (tmp_path / "page.html").read_text()
    assert run("tokens", "no-such").code == 2
    assert run("tokens", "sort", "-V", 1000).code == 2
    (tmp_path / "x.json").write_text("[[[3, 1, 2, 0, 3, 1]], [[9, 1, 2, 0, 3, 1]]]")
    done = run("run", tmp_path / "net", "-i", tmp_path / "x.json")
    assert done.code == 0
    assert "1 of 2 sequences are not of tokens 0 to 3" in done.out + done.err

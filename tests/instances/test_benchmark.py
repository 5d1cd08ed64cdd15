"""provenformer benchmark: answers are right beyond rounding, files are what verifiers read."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.instances.families import families
from provenformer.instances.problems import Problem, is_unsafe, problems
from provenformer.instances.write import write_benchmark

onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Problem]]:
    folder = tmp_path_factory.mktemp("vnn") / "benchmark"
    return folder, write_benchmark(folder, largest=4)


def session(folder: Path, problem: Problem) -> Any:
    return onnxruntime.InferenceSession(folder / "onnx" / f"{problem.network}.onnx", providers=["CPUExecutionProvider"])


def as_read(text: str) -> tuple[np.ndarray, np.ndarray, list[tuple[str, int, float]]]:
    """Ends of the inputs and the unsafe half-spaces, as a parser finds them in the file."""
    ends: dict[str, dict[int, float]] = {"<=": {}, ">=": {}}
    for side, i, value in re.findall(r"^\(assert \((<=|>=) X_(\d+) (\S+?)\)\)$", text, re.M):
        ends[side][int(i)] = float(value)
    unsafe = [(side, int(i), float(value)) for side, i, value in re.findall(r"\((<=|>=) Y_(\d+) ([^\s)]+)\)", text)]
    low, high = (np.array([ends[side][i] for i in range(len(ends[side]))]) for side in (">=", "<="))
    return low, high, unsafe


def test_files_say_what_the_problems_are(made: tuple[Path, list[Problem]]) -> None:
    folder, found = made
    instances = list(csv.reader((folder / "instances.csv").open()))
    answers = list(csv.DictReader((folder / "answers.csv").open()))
    assert len(found) == len(instances) == len(answers) >= 20
    for problem, (network, property_, seconds), row in zip(found, instances, answers, strict=True):
        assert (folder / network).is_file()
        assert float(seconds) > 0
        assert (row["vnnlib"], row["answer"], float(row["margin"])) == (property_, problem.answer, problem.margin)
        low, high, unsafe = as_read((folder / property_).read_text())
        assert np.array_equal(low, problem.low.ravel())
        assert np.array_equal(high, problem.high.ravel())
        assert unsafe == [(u.side, u.index, u.value) for u in problem.unsafe]
        assert all(float(np.float32(v)) == v for v in (*low, *high, *(u.value for u in problem.unsafe)))
        assert bool(row["witness"]) == (problem.answer == "sat")
        assert (folder / (row["witness"] or "README.md")).is_file()


def test_witnesses_are_reproduced_beyond_the_margin(made: tuple[Path, list[Problem]]) -> None:
    folder, found = made
    failing = [p for p in found if p.answer == "sat"]
    for problem in failing:
        assert problem.witness is not None
        text = (folder / "witnesses" / f"{problem.name}.counterexample").read_text()
        x = np.array([float(v) for v in re.findall(r"\(X_\d+ (\S+?)\)", text)]).reshape(problem.witness.shape)
        assert np.array_equal(x, problem.witness)
        assert (x >= problem.low).all()
        assert (x <= problem.high).all()
        (y,) = session(folder, problem).run(None, {"x": x[None].astype(np.float32)})
        exact = pf.load(folder / "networks" / problem.network).network(x)
        (unsafe,) = problem.unsafe
        sign = 1 if unsafe.side == ">=" else -1
        for output in (y[0], exact):
            assert is_unsafe(problem, output)
            assert sign * (output.ravel()[unsafe.index] - unsafe.value) >= problem.margin
    assert len(failing) >= 10


def test_what_holds_is_not_falsified_by_samples_and_gradients(made: tuple[Path, list[Problem]]) -> None:
    """Random inputs, corners, and ascent from the best of them; no output comes closer to a threshold than the margin."""
    folder, found = made
    rng = np.random.default_rng(0)
    for problem in (p for p in found if p.answer == "unsat"):
        network = pf.load(folder / "networks" / problem.network).network
        module = network.to_torch().float()
        low, high = (torch.from_numpy(v).float() for v in (problem.low, problem.high))
        inner, corners = rng.random((400, *problem.low.shape)), rng.integers(0, 2, size=(200, *problem.low.shape))
        start = problem.low + np.concatenate([inner, corners]) * (problem.high - problem.low)
        for unsafe in problem.unsafe:
            sign = 1.0 if unsafe.side == ">=" else -1.0

            def score(x: Any, sign: float = sign, index: int = unsafe.index, module: Any = module) -> Any:
                return sign * module(x).flatten(1)[:, index]

            x = torch.from_numpy(start).float()
            with torch.no_grad():
                reached = score(x)
            x = x[torch.argsort(reached)[-8:]]
            for step in (0.2, 0.1, 0.05, 0.02, 0.01):
                x = x.clone().requires_grad_()
                (slope,) = torch.autograd.grad(score(x).sum(), x)
                x = torch.clamp(x.detach() + step * (high - low) * slope.sign(), low, high)
            best = max(float(reached.max()), float(score(x).max()))
            assert best <= sign * unsafe.value - problem.margin, problem.name
            assert best >= sign * unsafe.value - problem.margin - 1.0  # the attack does get near


def test_a_threshold_on_the_wrong_side_would_be_found(made: tuple[Path, list[Problem]]) -> None:
    """The checks above have teeth: thresholds moved by the margin and the slack of the certificate give the other answer."""
    folder, found = made
    sort = next(p for p in found if p.name.startswith("sort") and p.answer == "sat")
    assert sort.witness is not None
    (unsafe,) = sort.unsafe
    raised = replace(sort, unsafe=(replace(unsafe, value=unsafe.value + sort.margin + 1e-3),))
    (y,) = session(folder, sort).run(None, {"x": sort.witness[None].astype(np.float32)})
    assert is_unsafe(sort, y)
    assert not is_unsafe(raised, y)


def test_facts_about_the_functions_hold_on_samples() -> None:
    """Every family, also those too large to run above: f never exceeds what is said, and reaches it at the witness."""
    for family in families(32):
        for question in family.questions:
            assert question.low.shape == question.witness.shape
            rng = np.random.default_rng(1)
            for x in (
                question.low + rng.random((200, *question.low.shape)) * (question.high - question.low),
                np.where(rng.random((200, *question.low.shape)) < 0.5, question.low, question.high),
                question.witness[None],
            ):
                y = family.target(x).reshape(len(x), -1)
                for known in question.never:
                    sign = 1 if known.side == ">=" else -1
                    assert (sign * y[:, known.index]).max() <= sign * known.value + 1e-12
            sign = 1 if question.reached.side == ">=" else -1
            assert sign * y[0, question.reached.index] >= sign * question.reached.value - 1e-12


def test_networks_of_the_folder_are_verified(made: tuple[Path, list[Problem]]) -> None:
    folder, found = made
    for name in {p.network for p in found}:
        ours = not name.startswith(("attention", "maximum", "sort"))
        assert pf.verify(folder / "networks" / name, trust_target=ours)


def test_bad_requests_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(pf.ProvenformerError, match="largest=2 leaves no network"):
        write_benchmark(tmp_path / "new", largest=2)
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").write_text("keep")
    with pytest.raises(pf.ProvenformerError, match="mine is there already"):
        write_benchmark(tmp_path / "mine", largest=3)
    family = next(families(3))
    (question,) = family.questions
    for wrong in (replace(question, high=question.high * 2), replace(question, witness=question.low - 1)):
        with pytest.raises(pf.ProvenformerError, match="leaves the box"):
            problems(wrong, family.target, "net", 1e-3, 0.1)
    for bound, margin in ((np.inf, 0.1), (1e-3, 0.0)):
        with pytest.raises(pf.ProvenformerError, match="no margin or no bound"):
            problems(question, family.target, "net", bound, margin)


@pytest.mark.parametrize("method", ["IBP", "CROWN"])
def test_a_public_verifier_agrees(made: tuple[Path, list[Problem]], method: str) -> None:
    """auto_LiRPA takes the torch modules; its bounds contain what the networks give, and it proves nothing that is false."""
    lirpa = pytest.importorskip("auto_LiRPA", reason="auto_LiRPA is not installed")
    folder, found = made
    proved = 0
    for problem in found:
        module = pf.load(folder / "networks" / problem.network).to_torch().float()
        low, high = (torch.from_numpy(v[None]).float() for v in (problem.low, problem.high))
        bounded = lirpa.BoundedModule(module, low)
        box = lirpa.BoundedTensor((low + high) / 2, lirpa.PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high))
        with torch.no_grad():
            least, most = bounded.compute_bounds(x=(box,), method=method)
            y = module(low + torch.rand(200, *problem.low.shape) * (high - low))
        if not (torch.isfinite(least).all() and torch.isfinite(most).all()):
            continue  # CROWN overflows on hard heads; it then says nothing
        assert (y >= least - 1e-4).all()
        assert (y <= most + 1e-4).all()
        safe = all(
            (most.flatten()[u.index] < u.value) if u.side == ">=" else (least.flatten()[u.index] > u.value)
            for u in problem.unsafe
        )
        assert not (safe and problem.answer == "sat")
        proved += bool(safe)
    assert proved >= (1 if method == "IBP" else 3)

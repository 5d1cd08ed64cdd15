"""to_transformer_lens(): the same states, patterns and outputs under TransformerLens' hook names; save_pretrained and back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf

torch = pytest.importorskip("torch")
VOCABULARY = 16


def layer_norm(x: Any) -> Any:
    z = x - np.mean(x, axis=-1, keepdims=True)
    return z / np.sqrt(np.mean(np.square(z), axis=-1, keepdims=True) + 0.5) + 0.25


def attention_and_mlp(x: Any) -> Any:
    scores = np.swapaxes(x, -1, -2) @ (np.array([[1.0, 0.5], [-0.5, 1.0]]) @ x)
    h = x + x @ np.swapaxes(pf.softmax(scores, axis=-1), -1, -2)
    return h + np.tanh(np.array([[0.5, 1.0], [1.0, -0.5]]) @ h)


def compiled(fn: Callable[[Any], Any] | str, d: int, n: int) -> Any:
    target = pf.targets.get(fn, d, n) if isinstance(fn, str) else pf.Target(fn, token_dim=d, seq_len=n)
    return pf.compile(target, tolerance=1e-2, norm_order=np.inf, construction="circuit")


NAMES = ["sort", "reverse", "softmax-mean", "layer norm", "attention and MLP"]
CASES = [("sort", 1, 8), ("reverse", 2, 5), ("softmax-mean", 1, 6), (layer_norm, 1, 6), (attention_and_mlp, 2, 4)]


def tokens(c: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A vocabulary (V, d) in the box, ids (batch, n), and the sequences that they stand for."""
    rng = np.random.default_rng(0)
    d, n = c.target.token_dim, c.target.seq_len
    values = rng.random((VOCABULARY, d))
    ids = rng.integers(0, VOCABULARY, size=(6, n))
    return values, ids, values[ids].transpose(0, 2, 1)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_hooks_show_the_states_and_patterns_of_the_circuit(case: tuple[Any, int, int]) -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    c = compiled(*case)
    values, ids, x = tokens(c)
    bound = c.certificate.bound
    for dtype, near in ((np.float64, 1e-11), (np.float32, 2e-3)):
        model = c.to_transformer_lens(values, dtype)
        logits, cache = model.run_with_cache(torch.from_numpy(ids))
        assert logits.dtype == getattr(torch, np.dtype(dtype).name)
        rounding = bound if dtype is np.float64 else c.certificate.bounds["float32"]
        assert np.abs(logits.numpy().transpose(0, 2, 1) - c.network(x)).max() <= bound + rounding
        states = list(c.network.states(x, every_attention_layer=True))
        ends = {s.stage: s.values for s in c.network.states(x)}
        for b, (block, weights) in enumerate(zip(c.network.circuit_blocks, c.attention(x), strict=True)):
            shown = cache[f"blocks.{b}.attn.hook_pattern"].numpy()[:, : len(block.heads)]
            np.testing.assert_allclose(shown, weights, atol=near)
            after = cache[f"blocks.{b}.hook_resid_post"].numpy().transpose(0, 2, 1)
            np.testing.assert_allclose(after, ends[f"block {b + 1}"], atol=near * (1 + np.abs(after).max()))
        start = cache["blocks.0.hook_resid_pre"].numpy().transpose(0, 2, 1)
        np.testing.assert_allclose(start, states[0].values, atol=near)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_are_largest_for_the_nearest_answer(dtype: Any) -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    c = compiled("sort", 1, 8)
    values = np.arange(VOCABULARY) / VOCABULARY
    ids = np.random.default_rng(3).integers(0, VOCABULARY, size=(50, 8))
    logits = c.to_transformer_lens(values, dtype, answers=values)(torch.from_numpy(ids))
    assert logits.shape == (50, 8, VOCABULARY)
    assert np.array_equal(logits.argmax(dim=-1).numpy(), np.sort(ids, axis=-1))
    lead = np.diff(np.sort(logits.double().numpy(), axis=-1)[..., -2:])
    bound = c.certificate.bounds[np.dtype(dtype).name]
    assert lead.min() >= (1 / VOCABULARY) * (1 / VOCABULARY - 2 * bound) - 1e-5
    with pytest.raises(pf.ProvenformerError, match="answers are numbers, but outputs are 2"):
        compiled("reverse", 2, 5).to_transformer_lens([[0.5, 0.5]], answers=[1.0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["induction", "sort_by_rank", "reverse", "histogram"])
def test_token_programs_answer_exactly(name: str, dtype: Any) -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    from provenformer.functions import programs

    c = pf.compile_tokens(getattr(programs, name), vocab=6, seq_len=8)
    ids = np.random.default_rng(5).integers(0, 6, size=(300, 8))
    logits, cache = c.to_transformer_lens(dtype).run_with_cache(torch.from_numpy(ids))
    found = logits.numpy()[..., 0].round() if c.numeric else logits.argmax(dim=-1).numpy()
    assert np.array_equal(found, getattr(programs, name)(ids))
    with pytest.raises(
        pf.ProvenformerError, match="about sequences of 8 tokens, not of 5; compile a program with pad="
    ):
        c.to_transformer_lens(dtype).run_with_cache(torch.from_numpy(ids[:, :5]))
    for b, weights in enumerate(c.attention(ids[0].tolist())):
        shown = cache[f"blocks.{b}.attn.hook_pattern"].numpy()[0, : len(weights)]
        np.testing.assert_allclose(shown, weights, atol=1e-10 if dtype is np.float64 else 1e-3)


def test_an_edit_under_a_hook_changes_the_output() -> None:
    """Sorting without its heads leaves tokens where they are: hooks are the computation, not a copy of it."""
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    c = compiled("reverse", 1, 5)
    values, ids, x = tokens(c)
    model = c.to_transformer_lens(values)

    def even_weights(pattern: Any, hook: Any) -> Any:  # noqa: ARG001
        return torch.full_like(pattern, 1 / 5)

    even = model.run_with_hooks(torch.from_numpy(ids), fwd_hooks=[("blocks.0.attn.hook_pattern", even_weights)])
    np.testing.assert_allclose(even.numpy()[:, :, 0], np.repeat(x.mean(axis=-1), 5, axis=1), atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_hook_names_say_what_is_where(case: tuple[Any, int, int]) -> None:
    c = compiled(*case)
    network, names = c.network, c.hook_names
    for b, block in enumerate(network.circuit_blocks):
        assert len(names.get(f"blocks.{b}.attn.hook_pattern", "")) == len(block.heads)
        assert len(names.get(f"blocks.{b}.mlp.hook_post", "")) == len(block.b_1)
        assert all(names.get(f"blocks.{b}.attn.hook_pattern", ["padding"]))
        for unit, words in enumerate(names.get(f"blocks.{b}.mlp.hook_post", ())):
            assert bool(words) == bool(block.W_2[:, unit].any())
        assert len(names[f"blocks.{b}.hook_resid_post"]) == network.model_dim
    last = names[f"blocks.{network.blocks - 1}.hook_resid_post"]
    for node in c.circuit.nodes:
        if node.kind == "input":
            assert names["blocks.0.hook_resid_pre"][node.channel] == f"{node.name} = {node.words}"
        elif node.channel is not None and node.layers == 2 * network.blocks:
            assert last[node.channel] == f"{node.name} = {node.words}"


def test_tokens_outside_the_box_are_refused() -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    c = compiled("reverse", 2, 5)
    with pytest.raises(pf.ProvenformerError, match="values reach from 0 to 3, outside the box"):
        c.to_transformer_lens([[0.0, 0.0], [1.0, 3.0]])
    for wrong in ([0.5], [[0.5]], [], [[np.nan, 0.0]]):
        with pytest.raises(pf.ProvenformerError, match="not finite tokens of 2 numbers"):
            c.to_transformer_lens(wrong)
    with pytest.raises(pf.ProvenformerError, match="float16 has no bound"):
        c.to_transformer_lens([[0.5, 0.5]], np.float16)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_saved_as_transformers_are_and_loaded_again(case: tuple[Any, int, int], tmp_path: Path) -> None:
    c = compiled(*case)
    x = torch.from_numpy(c.target.sample(10))
    c.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["num_hidden_layers"] == c.network.blocks
    again: Any = pf.from_pretrained(tmp_path / "model")
    assert torch.equal(again(x), c.to_torch()(x))
    again.float().save_pretrained(tmp_path / "model")
    half = pf.from_pretrained(tmp_path / "model")
    assert half(x).dtype == torch.float32
    assert torch.equal(half(x), c.to_torch().float()(x))


def test_a_model_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    compiled("sort", 1, 4).save_pretrained(folder)
    config, weights = (folder / "config.json").read_text(), load_file(folder / "model.safetensors")
    for name, value in (
        ("readout.weight", None), ("readout.weight", weights["readout.weight"][:, 1:]), ("blocks.0.bias", None),
        ("positions", weights["positions"] * torch.inf), ("extra", torch.zeros(1)),
        ("embedding.weight", weights["embedding.weight"][1:]),
    ):  # fmt: skip
        changed = {k: v.contiguous() for k, v in (weights | {name: value}).items() if v is not None}
        save_file(changed, folder / "model.safetensors")
        with pytest.raises(pf.ProvenformerError, match=r"is not the model of its config\.json"):
            pf.from_pretrained(folder)
    save_file(weights, folder / "model.safetensors")
    for old, new in (('"provenformer-circuit"', '"bert"'), ('"seq_len": 4', '"seq_len": "4"'), ('"float64"', '"int8"')):
        (folder / "config.json").write_text(config.replace(old, new))
        with pytest.raises(pf.ProvenformerError, match="does not describe"):
            pf.from_pretrained(folder)
    with pytest.raises(pf.ProvenformerError, match="No such file"):
        pf.from_pretrained(tmp_path / "nothing")
    (folder / "config.json").write_text(config)
    (folder / "mine.txt").write_text("keep me")
    with pytest.raises(pf.ProvenformerError, match="something else"):
        compiled("sort", 1, 4).save_pretrained(folder)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_disguised_programs_answer_exactly(dtype: Any) -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    c = pf.compile_tokens(pf.programs.get("sort", 6, 8))
    ids = np.random.default_rng(5).integers(0, 6, size=(300, 8))
    d = c.disguised(seed=2, within=0.05)
    assert np.dtype(dtype).name in d.bounds
    logits = d.to_transformer_lens(dtype)(torch.from_numpy(ids))
    assert np.array_equal(logits.argmax(dim=-1).numpy(), np.sort(ids, axis=-1))


def test_a_loaded_program_and_its_disguise_know_their_tokens(tmp_path: Path) -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    c = pf.compile_tokens(pf.programs.get("sort", 4, 5))
    c.save(tmp_path / "net")
    c.disguised(seed=2).save(tmp_path / "disguised")
    ids = np.random.default_rng(5).integers(0, 4, size=(50, 5))
    both: list[Any] = [pf.load(tmp_path / "net"), pf.load_disguised(tmp_path / "disguised")]
    for made in both:
        model = made.to_transformer_lens()
        assert np.array_equal(model(torch.from_numpy(ids)).argmax(dim=-1).numpy(), np.sort(ids, axis=-1))
        for wrong in (4, -1):
            with pytest.raises(pf.ProvenformerError, match="this model has tokens 0 to 3"):
                model(torch.from_numpy(np.where(ids == 3, wrong, ids)))

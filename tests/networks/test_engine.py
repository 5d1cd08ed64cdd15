"""The compiled engine against the reference evaluation: equal to the last bit."""

import numba
import numpy as np
import pytest
from cases import thin

import provenformer as pf
from provenformer.networks import engine
from provenformer.networks import thin as network
from provenformer.networks.thin import Network, ReluRun, SoftmaxRun


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize(
    ("name", "token_dim", "seq_len", "cells"), [("scaled-mean", 1, 3, 6), ("softmax-mean", 2, 2, 3), ("sort", 1, 3, 4)]
)
def test_constructed_networks(construction: str, name: str, token_dim: int, seq_len: int, cells: int) -> None:
    target = pf.targets.get(name, token_dim, seq_len)
    g = thin(pf.compile(target, cells_per_axis=cells, construction=construction, kind="lipschitz").network)
    outside = np.random.default_rng(1).normal(size=(300, token_dim, seq_len)) * 3
    corners = np.random.default_rng(2).integers(0, cells + 1, size=(300, token_dim, seq_len)) / cells
    x = np.concatenate([target.sample(300), outside, corners])
    np.testing.assert_array_equal(engine.evaluate(g, x), network.evaluate(g, x))


@pytest.mark.parametrize("token_dim", [1, 2, 3])
@pytest.mark.parametrize("tokens", [1, 255, 256, 700])
def test_random_weights(token_dim: int, tokens: int) -> None:
    """No structure to exploit, every unit active somewhere, biases on the output."""
    rng = np.random.default_rng(token_dim * tokens)
    run = ReluRun(
        "any",
        rng.normal(size=(40, 4, token_dim)),
        rng.normal(size=(40, 4)),
        rng.normal(size=(40, token_dim, 4)) / 8,
        rng.normal(size=(40, token_dim)),
    )
    x = rng.normal(size=(token_dim, tokens))
    np.testing.assert_array_equal(engine.feed_forward(run, x), network.feed_forward(run, x))


@pytest.mark.parametrize("token_dim", [1, 2])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_direction_with_output_bias(token_dim: int, sign: float) -> None:
    """The skipping path must not skip a layer whose units are off but whose b_2 is not 0."""
    rng = np.random.default_rng(7)
    direction = sign * rng.random(token_dim)
    run = ReluRun(
        "any",
        np.broadcast_to(direction, (30, 4, token_dim)),
        rng.normal(size=(30, 4)) - 2.0,
        rng.normal(size=(30, token_dim, 4)) / 8,
        rng.normal(size=(30, token_dim)) * (rng.random((30, 1)) < 0.5),
    )
    x = rng.normal(size=(token_dim, 300))
    np.testing.assert_array_equal(engine.feed_forward(run, x), network.feed_forward(run, x))


def test_call_uses_it_for_large_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Network(1, 2, (ReluRun("any", np.zeros((1, 4, 1)), np.zeros((1, 4)), np.zeros((1, 1, 4)), np.ones((1, 1))),))
    monkeypatch.setattr(network, "SMALL_JOB", 0)
    monkeypatch.setattr(engine, "evaluate", lambda _network, x: x + 2)
    assert (g(np.zeros((1, 2))) == 2).all()


def test_many_layers_are_a_large_job_for_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = 16_449
    shapes = ((layers, 4, 1), (layers, 4), (layers, 1, 4), (layers, 1))
    g = Network(1, 2, (ReluRun("any", *(np.broadcast_to(0.0, shape) for shape in shapes)),))
    monkeypatch.setattr(engine, "evaluate", lambda _network, x: x + 2)
    assert (g(np.zeros((1, 2))) == 2).all()


@pytest.mark.parametrize(("tokens", "threads"), [(6, 1), (6_000_000, numba.get_num_threads())])
def test_threads_follow_the_work(tokens: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(engine, "_one_row_one_direction", lambda *_: seen.append(numba.get_num_threads()))
    before = numba.get_num_threads()
    run = ReluRun("any", np.broadcast_to(1.0, (99, 4, 1)), np.zeros((99, 4)), np.zeros((99, 1, 4)), np.zeros((99, 1)))
    engine.feed_forward(run, np.zeros((1, tokens)))
    assert seen == [threads]
    assert numba.get_num_threads() == before


def test_attention_runs_pass_through() -> None:
    zeros = np.zeros((1, 2, 1))
    uniform = SoftmaxRun("any", np.array([[[2.0], [0.0]]]), np.array([[[1.0], [0.0]]]), zeros, zeros, np.zeros((1, 2)))
    g = Network(1, 2, (uniform,))
    np.testing.assert_array_equal(engine.evaluate(g, np.array([[[1.0, 3.0]]])), [[[5.0, 7.0]]])


def test_a_run_without_layers() -> None:
    """The paper's construction with fewer grid tokens than columns has one: nothing to do."""
    empty = ReluRun("any", np.zeros((0, 4, 1)), np.zeros((0, 4)), np.zeros((0, 1, 4)), np.zeros((0, 1)))
    x = np.arange(600.0)[None]
    np.testing.assert_array_equal(engine.feed_forward(empty, x), x)

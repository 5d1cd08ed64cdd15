"""Layers that change nothing are passed over; every state is still that of one layer after the other."""

import pickle

import numpy as np
import pytest

import provenformer as pf
from provenformer.networks.stack import first_where
from provenformer.networks.stages import VALUES
from provenformer.networks.thin import Network, ReluRun, evaluate, feed_forward, single


@pytest.fixture(scope="module", params=["sum", "paper"])
def compiled(request: pytest.FixtureRequest) -> pf.Compiled:
    target = pf.targets.get("scaled-mean", 1, 2)
    return pf.compile(target, cells_per_axis=4, construction=request.param, kind="lipschitz")


def inputs(compiled: pf.Compiled) -> np.ndarray:
    return np.concatenate([compiled.target.sample(3, seed=4), [[[-0.3, 0.6]], [[0.25, 0.25]], [[5.0, -7.0]]]])


def test_softmax_states(compiled: pf.Compiled) -> None:
    network = compiled.network
    assert isinstance(network, Network)
    values = inputs(compiled)
    states = [state.values for state in network.layer_states(values)]
    assert len(states) == network.layers + 1
    layers = [single(run, i) for run in network.runs for i in range(len(run))]
    for layer, state in zip(layers, states[1:], strict=True):
        values = evaluate(Network(1, 2, (layer,)), values)
        np.testing.assert_array_equal(state, values)
    np.testing.assert_array_equal(network(inputs(compiled)), values)


def test_a_network_from_another_process(compiled: pf.Compiled) -> None:
    """It is passed over there as well, and gives the same bits."""
    here = compiled.network
    assert isinstance(here, Network)
    sent = pickle.loads(pickle.dumps(here))
    alike = [[run.reads_alike for run in network.runs if isinstance(run, ReluRun)] for network in (here, sent)]
    assert alike[0] == alike[1]
    assert any(alike[0])
    np.testing.assert_array_equal(sent(inputs(compiled)), here(inputs(compiled)))


def test_hardmax_states(compiled: pf.Compiled) -> None:
    """One sequence at a time, where most layers are passed over, beside many at once, where most are not."""
    x = inputs(compiled)
    together = list(compiled.modified.trace(x, every="layer"))
    assert len(together) == compiled.modified.layers + 1
    for k, sequence in enumerate(x):
        alone = compiled.modified.trace(sequence[None], every="layer")
        for step, among in zip(alone, together, strict=True):
            assert (step.stage, step.layer) == (among.stage, among.layer)
            np.testing.assert_array_equal(step.values()[0], among.values()[k])
    np.testing.assert_array_equal(together[-1].floats(), compiled.piecewise(x))


def test_a_run_without_layers() -> None:
    empty = ReluRun(VALUES, np.zeros((0, 4, 1)), np.zeros((0, 4)), np.zeros((0, 1, 4)), np.zeros((0, 1)))
    np.testing.assert_array_equal(feed_forward(empty, np.ones((1, 3))), np.ones((1, 3)))


@pytest.mark.parametrize("wanted", [0, 1, 2, 6, 7, 40, 99, 100])
def test_the_first_layer_for_which_it_holds(wanted: int) -> None:
    holds = np.arange(100) >= wanted
    assert first_where(lambda at: holds[at], 0, 100) == wanted
    assert first_where(lambda at: holds[at], 5, 100) == max(5, wanted)

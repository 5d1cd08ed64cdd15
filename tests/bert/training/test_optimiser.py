"""Muon: its direction against the singular value decomposition, its step against the formula, and what it is for."""

import pytest
import torch
from torch import nn

from provenformer.bert import MixerBertConfig, MixerBertForPreTraining
from provenformer.bert.training.optimiser import Muon, build_optimizers, orthogonal
from provenformer.bert.training.settings import TrainingSettings


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 6, 20), (2, 20, 6)])
def test_directions_are_nearly_orthogonal(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, dtype=torch.float64)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    turned = u.transpose(1, 2) @ orthogonal(matrices) @ v.transpose(1, 2)  # diagonal, if the singular vectors are kept
    values = turned.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(turned, torch.diag_embed(values), rtol=0, atol=1e-9)
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_a_matrix_without_gradient_stays_where_it_is() -> None:
    assert (orthogonal(torch.zeros(1, 4, 3)) == 0).all()


def test_step_is_the_formula() -> None:
    """Two steps of matrices of two shapes, against one matrix at a time by the SVD (the quintic is near, not equal, to it)."""
    start = [torch.randn(4, 4), torch.randn(6, 3), torch.randn(4, 4)]
    gradients = [[torch.randn_like(matrix) for matrix in start] for _ in range(2)]
    parameters = [nn.Parameter(matrix.clone()) for matrix in start]
    optimizer = Muon(parameters, lr=0.1, weight_decay=0.5)
    expected, momenta = [matrix.clone() for matrix in start], [torch.zeros_like(matrix) for matrix in start]
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient
        optimizer.step()
        for index, gradient in enumerate(step):
            momenta[index] = 0.95 * momenta[index] + gradient
            direction = orthogonal((gradient + 0.95 * momenta[index])[None])[0]
            longer = max(gradient.shape)
            expected[index] = (1 - 0.1 * 0.5) * expected[index] - 0.1 * 0.2 * longer**0.5 * direction
    for parameter, value in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value)


def test_muon_has_the_matrices_of_the_layers_and_adamw_the_rest() -> None:
    config = MixerBertConfig(
        mixers=["attention", "sepconv", "bproj"],
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        norm_position="pre",
    )
    model = MixerBertForPreTraining(config)
    settings = TrainingSettings(optimizer="muon", learning_rate=1e-3, muon_learning_rate=2e-2, weight_decay=0.1)
    adamw, muon = build_optimizers(model, settings)
    names = {parameter: name for name, parameter in model.named_parameters()}
    by_muon = {names[p] for group in muon.param_groups for p in group["params"]}
    by_adamw = [names[p] for group in adamw.param_groups for p in group["params"]]
    assert by_muon.isdisjoint(by_adamw)
    assert sorted([*by_muon, *by_adamw]) == sorted(names.values())
    assert {name.split(".")[1] for name in by_muon} == {"encoder"}
    layer = "bert.encoder.layer.{}.attention.self.{}"
    assert {
        layer.format(0, "query.weight"),
        layer.format(1, "mixer.filters"),
        layer.format(2, "mixer.position_weight"),
    } < by_muon
    assert [group["peak"] for group in adamw.param_groups] == [1e-3, 1e-3]
    assert [group["peak"] for group in muon.param_groups] == [2e-2]
    decays = {names[p]: group["weight_decay"] for group in adamw.param_groups for p in group["params"]}
    assert {
        decay for name, decay in decays.items() if name.endswith("bias") or "Norm" in name or "final_norm" in name
    } == {0.0}
    assert decays["bert.embeddings.word_embeddings.weight"] == 0.1
    assert len(build_optimizers(model, TrainingSettings())) == 1

"""Each mixer, in its Hugging Face slot, under torch.compile: one graph, the same numbers, the same gradients."""

import shutil

import pytest
import torch

from provenformer.bert import MIXERS, MixerBertConfig
from provenformer.bert.model.slot import MixerSlot, mixer_for


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.slow
def test_compiles_without_a_graph_break(name: str) -> None:
    torch._dynamo.reset()
    config = MixerBertConfig(hidden_size=32, num_attention_heads=2, attention_probs_dropout_prob=0.0)
    slot = MixerSlot(mixer_for(name, config))
    compiled = torch.compile(slot, fullgraph=True, backend="inductor" if shutil.which("g++") else "aot_eager")
    real = torch.arange(12) < torch.tensor([[12], [7]])
    x, mask = torch.randn(2, 12, 32, requires_grad=True), real[:, None, None].expand(2, 1, 12, 12)
    results = []
    for module in (slot, compiled):
        output = module(x, attention_mask=mask)[0][real]
        results.append([output, *torch.autograd.grad(output.square().sum(), [x, *slot.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)

"""Each mixer in a model under bf16, gradient checkpointing, and data-parallel over two gloo processes."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from safetensors.torch import load_file, save_file
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from provenformer.bert import MIXERS, MixerBertConfig, MixerBertForPreTraining
from provenformer.bert.model.mixers import SepConv

every_mixer = pytest.mark.parametrize("mixer", MIXERS)


def tiny_model(mixer: str) -> MixerBertForPreTraining:
    torch.manual_seed(0)
    config = MixerBertConfig(
        mixers=mixer,
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return MixerBertForPreTraining(config)


def tiny_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(4, 12, dtype=torch.long)
    mask[1, 7:] = mask[3, 5:] = 0
    return {
        "input_ids": torch.randint(50, (4, 12), generator=generator),
        "attention_mask": mask,
        "labels": torch.randint(50, (4, 12), generator=generator),
        "next_sentence_label": torch.tensor([0, 1, 1, 0]),
    }


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad.clone()
    return found


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], **tolerance: Any) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], **tolerance, msg=partial("{}: {}".format, name))


@every_mixer
def test_bf16_autocast_stays_near_float32(mixer: str) -> None:
    model, inputs = tiny_model(mixer), tiny_batch()
    expected = model(**inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(**inputs)
    output.loss.backward()
    assert output.prediction_logits.dtype == torch.bfloat16
    torch.testing.assert_close(output.loss, expected.loss, rtol=0.02, atol=0.02)
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


@every_mixer
def test_bf16_weights(mixer: str) -> None:
    model, inputs = tiny_model(mixer), tiny_batch()
    expected = model(**inputs).loss
    output = model.to(torch.bfloat16)(**inputs)
    assert output.prediction_logits.dtype == torch.bfloat16
    torch.testing.assert_close(output.loss.float(), expected, rtol=0.02, atol=0.02)


def test_long_filters_have_an_fft_in_bf16() -> None:
    """The FFT way of sepconv, which has no bf16 of its own, under autocast and with bf16 weights."""
    mixer, x = SepConv(4, filters=2, filter_length=260), torch.randn(1, 300, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = mixer(x)
    for output in (cast, mixer.bfloat16()(x.bfloat16())):
        assert output.dtype == torch.bfloat16
        torch.testing.assert_close(output.float(), mixer.float()(x), rtol=0.1, atol=0.05)


@every_mixer
def test_gradient_checkpointing(mixer: str) -> None:
    model, inputs = tiny_model(mixer), tiny_batch()
    model(**inputs).loss.backward()
    plain = gradients(model)
    model.zero_grad()
    model.train()
    model.gradient_checkpointing_enable()
    model(**inputs).loss.backward()
    assert_same(gradients(model), plain)


def _gradients_of_two(mixer: str, rank: int) -> dict[str, torch.Tensor]:
    model = DistributedDataParallel(tiny_model(mixer))
    model(**{name: value[2 * rank : 2 * rank + 2] for name, value in tiny_batch().items()}).loss.backward()
    return gradients(model.module)


def _one_of_two_processes(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for mixer in MIXERS:
        # The wrapped model must end before the group: as its last owner torch would end its threads with the interpreter's
        # lock in hand, for which one of them may still be waiting, and the process would hang.
        found = _gradients_of_two(mixer, rank)
        if rank == 0:
            save_file(found, folder / f"{mixer}.safetensors")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_gloo_processes_give_the_gradient_of_one(tmp_path: Path) -> None:
    spawn(_one_of_two_processes, args=(tmp_path,), nprocs=2)
    for mixer in MIXERS:
        model = tiny_model(mixer)
        model(**tiny_batch()).loss.backward()
        assert_same(load_file(tmp_path / f"{mixer}.safetensors"), gradients(model), rtol=1e-4, atol=1e-6)

"""Whatever gives hidden states, behind one signature: a batch of equally long sequences in, one array per layer out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.bert.model.mixers import Mixer
from provenformer.bert.model.replacing import load_model
from provenformer.networks.base import FloatNetwork

Array = NDArray[Any]
States = list[tuple[str, Array]]  # name of the layer, (batch, tokens, width); the input of the first layer comes first
REMEDY = (
    "give a model of transformers, a mixer, a network of this library, or a function that returns one array per layer"
)


@dataclass(frozen=True)
class Reader:
    """A model to be measured.

    run             states for a batch (batch, n) of token ids, or (batch, n, d) of vectors
    reads_vectors   whether it reads vectors
    equivariant     whether it cannot know the order of its tokens; None if nobody said
    random          the same model with random weights, from a seed; None for what has no weights to draw
    limit           longest sequence it takes
    """

    name: str
    run: Callable[[Array], States]
    reads_vectors: bool
    random: Callable[[int], Reader] | None = None
    equivariant: bool | None = None
    tokenizer: Any = None
    limit: int | None = None


def load(name: str | Path, tokenizer: Any = None) -> Reader:
    """A saved model and its tokenizer, from a folder or the hub; nothing in a folder is executed."""
    model = load_model(name, AutoModel).eval()
    if tokenizer is None:
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
        except Exception as error:  # whatever is wrong with the files of a tokenizer
            reason = one_line(error)[:200]
            raise ProvenformerError(f"{name} has no tokenizer that loads ({reason}); give tokenizer=") from None
    return _of_transformers(model, tokenizer, Path(name).name)


def reader(model: Any, tokenizer: Any = None) -> Reader:
    """Any kind of model."""
    if isinstance(model, Reader):
        return model
    if isinstance(model, str | Path):
        return load(model, tokenizer)
    if isinstance(model, PreTrainedModel):
        return _of_transformers(model, tokenizer, type(model).__name__)
    network = getattr(model, "network", model)  # what compile() returns has one
    if isinstance(network, FloatNetwork):
        return _of_network(network)
    if isinstance(model, Mixer):
        return _of_mixers([model])
    if isinstance(model, Sequence) and model and all(isinstance(one, Mixer) for one in model):
        return _of_mixers(list(model))
    if isinstance(model, nn.Module) or not callable(model):
        raise ProvenformerError(f"{type(model).__name__} has no hidden states per layer that are known; {REMEDY}.")
    return _of_function(model, tokenizer)


def _of_transformers(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, name: str) -> Reader:
    config = model.config
    body = model.get_encoder() if config.is_encoder_decoder else model.base_model

    def run(batch: Array) -> States:
        device = next(body.parameters()).device
        ids = torch.from_numpy(batch).to(device)
        was_training = body.training
        body.eval()
        with torch.no_grad():
            output = body(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        body.train(was_training)
        states = getattr(output, "hidden_states", None)
        if not states:
            raise ProvenformerError(f"{name} ({type(body).__name__}) returns no hidden_states; {REMEDY}.")
        arrays = [state.float().cpu().numpy() for state in states]
        return [("embeddings" if k == 0 else f"layer {k}", array) for k, array in enumerate(arrays)]

    def random(seed: int) -> Reader:
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        twin = _random_twin(model)
        torch.set_rng_state(state)
        return _of_transformers(twin, tokenizer, f"{name}, random weights")

    limit = getattr(config, "max_position_embeddings", None)
    return Reader(name, run, False, random, tokenizer=tokenizer, limit=limit)


def _random_twin(model: PreTrainedModel) -> PreTrainedModel:
    """The same architecture as its own initialisation leaves it."""
    twin = deepcopy(model)
    for module in twin.modules():
        module._is_hf_initialized = False
    for parameter in twin.parameters():
        parameter._is_hf_initialized = False
        parameter.requires_grad_(False)
    twin.init_weights()
    for module in twin.modules():
        if isinstance(module, Mixer):
            module.reset_parameters()
    return twin.eval()


def _of_network(network: FloatNetwork) -> Reader:
    """States at the start and after every stage, float64; and the output, where the last state holds more than that."""

    def run(batch: Array) -> States:
        x = np.swapaxes(batch, 1, 2)
        found = [(state.stage, np.swapaxes(state.values, 1, 2)) for state in network.states(x)]
        output = np.swapaxes(network(x), 1, 2)
        return found if np.array_equal(found[-1][1], output) else [*found, ("output", output)]

    alike = (
        network.positions is None or not np.ptp(network.positions, axis=1).any()
    )  # every place has the same position
    return Reader(type(network).__name__, run, True, equivariant=alike, limit=network.seq_len)


def _of_mixers(mixers: list[Mixer]) -> Reader:
    """A stack of mixers without anything between them."""

    def run(batch: Array) -> States:
        kind = next((p.dtype for mixer in mixers for p in mixer.parameters()), torch.float64)
        hidden = torch.from_numpy(batch).to(kind)
        found = [("input", hidden.numpy())]
        with torch.no_grad():
            for k, mixer in enumerate(mixers):
                hidden = mixer(hidden)
                found.append((f"layer {k + 1}", hidden.numpy()))
        return found

    def random(seed: int) -> Reader:
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        fresh = deepcopy(mixers)
        for module in (module for mixer in fresh for module in mixer.modules()):
            if isinstance(module, Mixer | nn.Linear):
                module.reset_parameters()
        torch.set_rng_state(state)
        return _of_mixers(fresh)

    return Reader("+".join(type(mixer).__name__ for mixer in mixers), run, True, random)


def _of_function(function: Callable[..., Any], tokenizer: Any) -> Reader:
    def run(batch: Array) -> States:
        found = function(batch)
        if not isinstance(found, list | tuple) or not found:
            raise ProvenformerError(f"the function gives {type(found).__name__}, no hidden states per layer; {REMEDY}.")
        arrays = [np.asarray(one) for one in found]
        for k, array in enumerate(arrays):
            if array.ndim != 3 or array.shape[:2] != batch.shape[:2] or array.dtype.kind != "f":
                wanted = f"floats {tuple(batch.shape[:2])} and a width"
                raise ProvenformerError(
                    f"layer {k} of the function is {array.dtype} {array.shape}; it must be {wanted}."
                )
        return [(f"layer {k}", array) for k, array in enumerate(arrays)]

    return Reader(getattr(function, "__name__", type(function).__name__), run, False, tokenizer=tokenizer)

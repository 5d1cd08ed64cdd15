"""Small models and sequences for the tests of contextual."""

from typing import Any

import numpy as np
import torch

from provenformer.bert import MixerBertConfig, MixerBertModel

VOCABULARY = 50


def mixer_bert(mixers: Any, layers: int = 2, seed: int = 0, **options: Any) -> Any:
    """A small BERT with these mixers, untrained."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 40,
    }
    config = MixerBertConfig(**(sizes | options), num_hidden_layers=layers, mixers=mixers, initializer_range=0.2)
    return MixerBertModel(config).eval()


def some_ids() -> list[list[int]]:
    """Sequences of several lengths, all different."""
    rng = np.random.default_rng(0)
    return [rng.integers(5, VOCABULARY, size=length).tolist() for length in (6, 9, 9, 12, 6, 15, 12, 9)]


def trained(model: Any, length: int = 24, steps: int = 12) -> Any:
    """The same model after a few steps on a task that needs the context: which token stands first."""
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(model.config.hidden_size, VOCABULARY)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(steps):
        ids = torch.randint(5, VOCABULARY, (8, length), generator=generator)
        scores = head(model(input_ids=ids).last_hidden_state)
        loss: Any = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, :1].expand_as(ids).flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model

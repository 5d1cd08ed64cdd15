"""Earlier and public paths lead to where things live now."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("door", "room", "name"),
    [
        ("bert", "bert.model.config", "MixerBertConfig"),
        ("bert", "bert.model.models", "MixerBertForPreTraining"),
        ("bert", "bert.model.replacing", "replace_attention"),
        ("bert", "bert.model.mixers", "MIXERS"),
        ("bert.mixers", "bert.model.mixers", "SepConv"),
        ("bert.config", "bert.model.config", "MixerBertConfig"),
        ("bert.claims", "bert.model.claims", "average_is_not_contextual"),
        ("bert.provenance", "bert.runtime.provenance", "provenance"),
        ("bert.study", "bert.study.run", "run_study"),
    ],
)
def test_doors_open(door: str, room: str, name: str) -> None:
    outside, inside = (importlib.import_module(f"provenformer.{module}") for module in (door, room))
    assert getattr(outside, name) is getattr(inside, name)

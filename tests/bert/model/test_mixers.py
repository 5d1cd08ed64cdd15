"""Each mixer against a slow, obvious reference; its gradients; padding; lengths; bad input."""

import cmath
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers import MIXERS, Mixer, build_mixer
from provenformer.bert.model.mixers.convolution import BLOCK, convolve, convolve_fft, convolve_toeplitz, taps_before

DIM, LONGEST = 8, 16
OPTIONS: dict[str, dict[str, Any]] = {
    "attention": {"heads": 2},
    "average": {},
    "bproj": {"size": LONGEST},
    "sepconv": {"filters": 4, "filter_length": 4},
    "dynamicconv": {"filters": 4, "filter_length": 5},
    "fourier": {},
}
every_mixer = pytest.mark.parametrize("name", MIXERS)


def small(name: str, **more: Any) -> Any:  # a Mixer; each kind has parameters of its own
    mixer = build_mixer(name, DIM, **(OPTIONS[name] | more)).double()
    for parameter in mixer.parameters():  # large biases too, so that a leak out of the padding is seen
        nn.init.normal_(parameter)
    return mixer


def test_every_mixer_has_a_case() -> None:
    assert OPTIONS.keys() == MIXERS.keys()


# --- references: one sequence (tokens, dim), token by token ---


def glu(mixer: Any, x: Tensor) -> Tensor:
    value, gate = (x @ mixer.gate.weight.T + mixer.gate.bias).chunk(2, dim=-1)
    return value * torch.sigmoid(gate)


def slide(x: Tensor, taps_at: list[Tensor]) -> Tensor:
    """taps_at[j] (groups, taps) is the filter at token j."""
    out = torch.zeros_like(x)
    for j, filters in enumerate(taps_at):
        groups, taps = filters.shape
        for c in range(x.shape[1]):
            for t in range(taps):
                i = j + t - (taps - 1) // 2
                if 0 <= i < len(x):
                    out[j, c] += filters[c * groups // x.shape[1], t] * x[i, c]
    return out


def slow_attention(mixer: Any, x: Tensor) -> Tensor:
    inner, size = mixer.attention, DIM // 2
    query, key, value = inner.query(x), inner.key(x), inner.value(x)
    out = torch.zeros_like(x)
    for h in range(2):
        part = slice(h * size, (h + 1) * size)
        for j in range(len(x)):
            weight = torch.softmax(torch.stack([query[j, part] @ k for k in key[:, part]]) / math.sqrt(size), dim=0)
            out[j, part] = sum(w * v for w, v in zip(weight, value[:, part], strict=True))
    return out


def slow_average(_: Mixer, x: Tensor) -> Tensor:
    return torch.stack([sum(x, torch.zeros(DIM)) / len(x)] * len(x))


def slow_bproj(mixer: Any, x: Tensor) -> Tensor:
    weight = mixer.position_weight
    return torch.stack([sum((weight[i, j] * x[i] for i in range(len(x))), torch.zeros(DIM)) for j in range(len(x))])


def slow_sepconv(mixer: Any, x: Tensor) -> Tensor:
    return slide(glu(mixer, x), [mixer.filters] * len(x))


def slow_dynamicconv(mixer: Any, x: Tensor) -> Tensor:
    gated = glu(mixer, x)
    return slide(gated, [torch.softmax((mixer.predict.weight @ g).view(4, 5), dim=-1) for g in gated])


def slow_fourier(_: Mixer, x: Tensor) -> Tensor:
    tokens, dim = x.shape
    out = torch.zeros_like(x)
    for j in range(tokens):
        for c in range(dim):
            terms = [
                x[i, e].item() * cmath.exp(-2j * math.pi * (i * j / tokens + e * c / dim))
                for i in range(tokens)
                for e in range(dim)
            ]
            out[j, c] = sum(terms).real / math.sqrt(tokens * dim)
    return out


REFERENCES = {
    "attention": slow_attention,
    "average": slow_average,
    "bproj": slow_bproj,
    "sepconv": slow_sepconv,
    "dynamicconv": slow_dynamicconv,
    "fourier": slow_fourier,
}


@every_mixer
@pytest.mark.parametrize("tokens", [1, 7, 12])
@torch.no_grad()
def test_equals_the_slow_reference(name: str, tokens: int) -> None:
    mixer, x = small(name), torch.randn(2, tokens, DIM, dtype=torch.float64)
    expected = torch.stack([REFERENCES[name](mixer, sequence) for sequence in x])
    torch.testing.assert_close(mixer(x), expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(mixer(x, torch.ones(2, tokens)), expected, rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_sepconv_softmax_makes_each_filter_a_mean() -> None:
    mixer = small("sepconv", softmax_taps=True)
    x = torch.randn(1, 9, DIM, dtype=torch.float64)
    expected = slide(glu(mixer, x[0]), [mixer.filters.softmax(-1)] * 9)
    torch.testing.assert_close(mixer(x)[0], expected)


@torch.no_grad()
def test_dynamicconv_across_blocks() -> None:
    mixer, x = small("dynamicconv"), torch.randn(2, BLOCK + 9, DIM, dtype=torch.float64)
    torch.testing.assert_close(mixer(x)[1], slow_dynamicconv(mixer, x[1]))


# --- the three ways to convolve ---


@pytest.mark.parametrize("taps", [1, 2, 3, 8, 33, 128, 300])
@pytest.mark.parametrize("tokens", [1, 5, BLOCK, 2 * BLOCK + 3, 300])
def test_toeplitz_and_fft_equal_conv1d(tokens: int, taps: int) -> None:
    x, filters = torch.randn(2, tokens, 6, dtype=torch.float64), torch.randn(3, taps, dtype=torch.float64)
    before = taps_before(taps)
    padded = nn.functional.pad(x.transpose(1, 2), (before, taps - 1 - before))
    expected = nn.functional.conv1d(padded, filters.repeat_interleave(2, 0).unsqueeze(1), groups=6).transpose(1, 2)
    for way in (convolve_toeplitz, convolve_fft, convolve):
        torch.testing.assert_close(way(x, filters), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("tokens", "taps"), [(6, 4), (2 * BLOCK + 1, 3)])
@pytest.mark.parametrize("way", [convolve_toeplitz, convolve_fft])
def test_convolution_gradients(way: Callable[[Tensor, Tensor], Tensor], tokens: int, taps: int) -> None:
    x = torch.randn(1, tokens, 2, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(2, taps, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(way, (x, filters), fast_mode=tokens > BLOCK)


# --- gradients ---


@every_mixer
@pytest.mark.parametrize("masked", [False, True])
def test_gradcheck_in_float64(name: str, masked: bool) -> None:
    mixer = small(name)
    x = torch.randn(2, 6, DIM, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]]) if masked else None
    names, values = zip(*mixer.named_parameters(), strict=True) if list(mixer.parameters()) else ((), ())

    def real_output(x: Tensor, *values: Tensor) -> Tensor:
        mixed: Tensor = torch.func.functional_call(mixer, dict(zip(names, values, strict=True)), (x, mask))
        return mixed if mask is None else mixed[mask.bool()]

    assert torch.autograd.gradcheck(real_output, (x, *values), fast_mode=True)


# --- padding and lengths ---


@every_mixer
@pytest.mark.parametrize(("left", "right"), [(0, 4), (4, 0), (3, 2)])
@torch.no_grad()
def test_padding_does_not_change_real_tokens(name: str, left: int, right: int) -> None:
    mixer, x = small(name), torch.randn(2, 7, DIM, dtype=torch.float64)
    padded = 1e3 * torch.randn(2, left + 7 + right, DIM, dtype=torch.float64)
    padded[:, left : left + 7] = x
    mask = torch.zeros(2, left + 7 + right)
    mask[:, left : left + 7] = 1
    torch.testing.assert_close(mixer(padded, mask)[:, left : left + 7], mixer(x), rtol=1e-12, atol=1e-12)


@every_mixer
@torch.no_grad()
def test_what_stands_in_the_padding_changes_no_bit(name: str) -> None:
    mixer = small(name).float()
    one, mask = torch.randn(3, 9, DIM), torch.arange(9) < torch.tensor([[9], [5], [1]])
    other = torch.where(mask.unsqueeze(-1), one, 1e3 * torch.randn_like(one))
    assert torch.equal(mixer(one, mask)[mask], mixer(other, mask)[mask])


@pytest.mark.parametrize("name", [name for name in MIXERS if name != "attention"])
@torch.no_grad()
def test_not_even_nan_leaks_out_of_the_padding(name: str) -> None:
    mixer, x, mask = small(name), torch.randn(2, 6, DIM, dtype=torch.float64), torch.ones(2, 6)
    mask[1, 3:], x[1, 3:] = 0, torch.nan
    assert mixer(x, mask)[mask.bool()].isfinite().all()


@torch.no_grad()
def test_bproj_left_and_right_padding_agree_bit_for_bit() -> None:
    mixer, x = small("bproj").float(), torch.randn(2, 5, DIM)
    blank, ones = torch.zeros(2, 3, DIM), torch.ones(2, 5)
    right = mixer(torch.cat([x, blank], 1), torch.cat([ones, torch.zeros(2, 3)], 1))[:, :5]
    left = mixer(torch.cat([blank, x], 1), torch.cat([torch.zeros(2, 3), ones], 1))[:, 3:]
    assert torch.equal(left, right)


@every_mixer
@torch.no_grad()
def test_a_sequence_of_padding_alone_stays_finite(name: str) -> None:
    assert small(name)(torch.randn(1, 4, DIM, dtype=torch.float64), torch.zeros(1, 4)).isfinite().all()


@every_mixer
@torch.no_grad()
def test_any_length_except_beyond_bproj(name: str) -> None:
    mixer = small(name)
    for tokens in (1, LONGEST, LONGEST + 1, 3 * BLOCK):
        x = torch.randn(1, tokens, DIM, dtype=torch.float64)
        if name == "bproj" and tokens > LONGEST:
            with pytest.raises(ProvenformerError, match=rf"16 tokens and got {tokens}; truncate .* size={tokens}"):
                mixer(x)
        else:
            assert mixer(x).shape == x.shape


# --- bad input: one clear line ---


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gru", {}, "unknown mixer 'gru'; choose one of attention, average"),
        ("sepconv", {"filters": 3}, r"filters=3 must divide dim=8; choose one of \[1, 2, 4, 8\]"),
        ("sepconv", {"filters": 0}, "filters=0 must divide"),
        ("dynamicconv", {"filters": 5}, "filters=5 must divide dim=8"),
        ("sepconv", {"filters": 4, "filter_length": 0}, "filter_length=0 must be at least 1"),
        ("sepconv", {"filters": 4, "filter_length": 6, "symmetric": True}, "filter_length=6 is even.*use 5 or 7"),
        ("sepconv", {"filters": "many"}, "cannot be built with"),
        ("bproj", {"size": 0}, "size=0 must be at least 1"),
        ("bproj", {"band": -1.0}, "band=-1.0 must be at least 0 and finite"),
        ("bproj", {"band": "wide"}, "cannot be built with"),
        ("attention", {"heads": 3}, "heads=3 must divide dim=8"),
        ("average", {"size": 3}, "has no option 'size'; it takes none"),
    ],
)
def test_bad_options(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ProvenformerError, match=message) as caught:
        build_mixer(name, DIM, **options)
    assert "\n" not in str(caught.value)


def test_bproj_may_start_as_a_band() -> None:
    weight = build_mixer("bproj", DIM, size=40, band=2.0).get_parameter("position_weight").detach()
    torch.testing.assert_close(weight.norm(dim=0), torch.ones(40))  # keeps the variance of independent tokens
    torch.testing.assert_close(weight[20:23, 20] / weight[20, 20], torch.tensor([0.0, -0.5, -1.0]).exp())


def test_odd_filters_may_be_symmetric() -> None:
    assert build_mixer("sepconv", DIM, filters=4, filter_length=5, symmetric=True).filters.shape == (4, 5)


@every_mixer
def test_bad_shapes(name: str) -> None:
    mixer = small(name)
    with pytest.raises(ProvenformerError, match=r"hidden has shape \(2, 3, 5\); give \(batch, tokens, 8\)"):
        mixer(torch.zeros(2, 3, 5))
    with pytest.raises(ProvenformerError, match=r"mask has shape \(2, 4\); give \(batch, tokens\) = \(2, 3\)"):
        mixer(torch.zeros(2, 3, DIM), torch.ones(2, 4))
    with pytest.raises(ProvenformerError, match="dim=0"):
        MIXERS[name](0)

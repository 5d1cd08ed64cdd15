"""What every mixer is: a map of (batch, tokens, dim) to the same shape, told by a mask which tokens are real.

A mixer does the token mixing alone: the output projection W_O, the skip connection and the LayerNorm are BERT's.
Two promises, kept by every mixer and tested for each:
- what stands in the padded positions cannot change the output on real tokens;
- nor can the number of padded positions, left or right, except for the rounding of longer sums.
The output on padded positions is finite and means nothing.
"""

from torch import Tensor, nn

from provenformer.base.errors import ProvenformerError


class Mixer(nn.Module):
    """Base class: checks the input once, then hands it to `mix`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise ProvenformerError(f"dim={dim} must be at least 1; give the hidden size of the model")
        self.dim = dim

    def reset_parameters(self) -> None:
        """Initialise the bare parameters; Linear layers inside are left to their own or to Hugging Face's rule."""

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix (batch, tokens, dim); `mask` (batch, tokens) is 1 on real tokens, and None means that all are real."""
        if hidden.dim() != 3 or hidden.shape[-1] != self.dim:
            raise ProvenformerError(f"hidden has shape {tuple(hidden.shape)}; give (batch, tokens, {self.dim})")
        if mask is not None and mask.shape != hidden.shape[:2]:
            shapes = f"{tuple(mask.shape)}; give (batch, tokens) = {tuple(hidden.shape[:2])}"
            raise ProvenformerError(f"mask has shape {shapes}, 1 on real tokens")
        return self.mix(hidden, None if mask is None else mask.bool())

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        """The mixing itself; `real` is boolean or None."""
        raise NotImplementedError


def zero_padding(hidden: Tensor, real: Tensor | None) -> Tensor:
    """Zero the padded positions. A fill, not a product: not even NaN in the padding may leak."""
    return hidden if real is None else hidden.masked_fill(~real.unsqueeze(-1), 0)

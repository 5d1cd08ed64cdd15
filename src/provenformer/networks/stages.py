"""The names of the stages, in the order in which a network goes through them. Saved folders hold them."""

from typing import Final

INPUT: Final = "input"  # the state before the first layer
RESCALE: Final = "rescale"
QUANTISE: Final = "quantise"
RECODE: Final = "recode"
SNAP: Final = "snap"
CONTEXT: Final = "contextual map"
VALUES: Final = "values"
RESCALE_OUTPUT: Final = "rescale output"
CLIP: Final = "clip"

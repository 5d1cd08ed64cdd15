"""The paper's statements as checks, under their public name."""

from provenformer.constructions.lemmas import *  # noqa: F403

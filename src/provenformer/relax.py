"""Earlier name of constructions/relax.py."""

from provenformer.constructions.relax import *  # noqa: F403

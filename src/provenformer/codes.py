"""Earlier name of constructions/sum/codes.py."""

from provenformer.constructions.sum.codes import *  # noqa: F403

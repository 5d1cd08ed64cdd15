"""The built-in targets, under their public name."""

from provenformer.functions.targets import *  # noqa: F403

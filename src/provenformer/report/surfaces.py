"""Earlier name of look/slices.py."""

from provenformer.look.slices import *  # noqa: F403

"""Earlier name of look/bumps.py."""

from provenformer.look.bumps import *  # noqa: F403

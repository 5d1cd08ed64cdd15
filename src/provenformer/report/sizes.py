"""Earlier name of look/sizes.py."""

from provenformer.look.sizes import *  # noqa: F403

"""Earlier name of networks/modified.py."""

from provenformer.networks.modified import *  # noqa: F403

"""Earlier name of networks/wide.py."""

from provenformer.networks.wide import *  # noqa: F403

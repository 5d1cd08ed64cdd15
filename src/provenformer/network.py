"""Earlier name of networks/thin.py."""

from provenformer.networks.thin import *  # noqa: F403

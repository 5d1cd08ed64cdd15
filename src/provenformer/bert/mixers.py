"""The mixers under their earlier name."""

from provenformer.bert.model.mixers import *  # noqa: F403

"""The configuration under its earlier name."""

from provenformer.bert.model.config import *  # noqa: F403

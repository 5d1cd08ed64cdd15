"""What the paper claims of the mixers, under its public name."""

from provenformer.bert.model.claims import *  # noqa: F403

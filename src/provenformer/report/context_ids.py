"""Earlier name of look/context_ids.py."""

from provenformer.look.context_ids import *  # noqa: F403

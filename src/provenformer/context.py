"""Earlier name of constructions/paper/context.py."""

from provenformer.constructions.paper.context import *  # noqa: F403

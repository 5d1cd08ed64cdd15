"""Earlier name of look/states.py."""

from provenformer.look.states import *  # noqa: F403

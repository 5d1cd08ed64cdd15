"""Earlier name of look/slices.py and look/measured.py."""

from provenformer.look.measured import *  # noqa: F403
from provenformer.look.slices import *  # noqa: F403

"""Earlier name of look/subject.py."""

from provenformer.look.subject import *  # noqa: F403

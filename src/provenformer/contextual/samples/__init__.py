"""Texts of the library's own: a hundred plain sentences, and words in contexts of two senses (senses.txt)."""

from importlib.resources import files


def sentences() -> list[str]:
    """The sentences that are measured when no others are given."""
    return files(__name__).joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()


def sense_lines() -> str:
    """Lines `word | sense | sentence`."""
    return files(__name__).joinpath("senses.txt").read_text(encoding="utf-8")

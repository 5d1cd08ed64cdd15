"""The errors a user can cause. Every message is one line: quantity, limit, remedy."""


class ProvenformerError(ValueError):
    """Bad input: the message names the quantity, the limit and the remedy. The CLI prints it and exits with code 2."""


class Rejected(Exception):  # noqa: N818  (a verdict, not an error)
    """A saved network breaks a rule of the checker; the message names the layer and the property."""

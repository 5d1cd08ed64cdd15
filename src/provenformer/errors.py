"""The errors a user can cause. Every message is one line: quantity, limit, remedy."""


class ProvenformerError(ValueError):
    """Bad input: the message names the quantity, the limit and the remedy. The CLI prints it and exits with code 2."""

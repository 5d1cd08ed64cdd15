"""The errors a user can cause, as classes where somebody reacts to them. Every message is one line: quantity, limit, remedy."""


class ProvenformerError(ValueError):
    """Bad input: the message names the quantity, the limit and the remedy. The CLI prints it and exits with code 2."""


class TooLarge(ProvenformerError):  # noqa: N818  (what is wrong, in two words)
    """A network beyond a size limit: of layers, of hidden units, or of what float64 can carry."""


class TargetError(ProvenformerError):
    """A function that cannot be used: not found, not evaluable, or not what it was declared to be."""


class Untraceable(TargetError):  # noqa: N818
    """A function that cannot be turned into a graph of symbols: the operation, the range and the remedy."""


class BadFolder(ProvenformerError):  # noqa: N818
    """A folder that does not hold what it should, or that may not be overwritten."""


class MissingExtra(ImportError, ProvenformerError):  # noqa: N818
    """An optional library that is not installed, or that is and cannot be imported."""


class Rejected(Exception):  # noqa: N818  (a verdict, not an error)
    """A saved network breaks a rule of the checker; the message names the layer and the property."""


class BeyondLimits(Rejected):
    """Its numbers are so large that nothing is claimed of them."""


def one_line(text: object) -> str:
    """Whatever it says on a single line, with nothing that could steer a terminal: for words that come from elsewhere."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(str(text).split()))

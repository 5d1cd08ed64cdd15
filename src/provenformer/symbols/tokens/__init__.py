"""A numpy program on integer tokens as a graph of whole numbers."""

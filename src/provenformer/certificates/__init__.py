"""The claim about a network, and how it is derived while one is built."""

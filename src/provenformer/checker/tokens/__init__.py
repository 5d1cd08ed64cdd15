"""The check of a token circuit, from its weights and the graph of its program."""

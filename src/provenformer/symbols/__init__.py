"""A user's numpy function as a graph of symbols: what is linear, what is not, and between which numbers it lies."""

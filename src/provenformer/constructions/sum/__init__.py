"""The sum construction: contexts by one uniform attention layer (docs/sum.md)."""

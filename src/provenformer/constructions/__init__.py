"""The constructions: how a network is built. `base` says what one is, `registry` lists them."""

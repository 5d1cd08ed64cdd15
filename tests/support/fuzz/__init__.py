"""Random functions and random forgeries: every bound handed out must hold, every forgery be rejected or true.

`make fuzz MINUTES=60` runs it for long (fuzz/__main__.py). tests/fuzz runs a small budget, and every finding that was kept.
"""

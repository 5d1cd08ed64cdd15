"""The independent checker behind `verify`: it shares no code with the construction."""

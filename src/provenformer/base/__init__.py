"""Errors, arrays, files and exact numbers: what everything else stands on."""

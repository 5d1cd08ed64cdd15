"""The sum construction as three or four ordinary blocks (docs/sum.md, "Width for depth")."""

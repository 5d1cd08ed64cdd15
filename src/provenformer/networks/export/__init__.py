"""Networks in the formats of other tools."""

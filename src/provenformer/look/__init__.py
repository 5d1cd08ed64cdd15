"""What report and explorer both show of a network."""

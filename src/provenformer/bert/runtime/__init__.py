"""What a run stands on: processes and their shares, folders, logs, saved models, the machine, provenance."""

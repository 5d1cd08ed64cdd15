"""The model: its configuration, the mixers, BERT's layers with a mixer in them, and what the paper says of it."""

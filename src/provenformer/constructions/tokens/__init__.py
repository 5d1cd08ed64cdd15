"""Programs on tokens as Transformers."""

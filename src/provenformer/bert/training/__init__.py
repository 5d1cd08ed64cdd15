"""Training: settings, optimizers, the loop that pre-training and fine-tuning share, and their tasks."""

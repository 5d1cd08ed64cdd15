"""Retrofit: the lowest layers of a trained model get SepConv in place of attention, learn to do what attention did, and the
whole is fine-tuned on MNLI. What it costs in accuracy and saves in time: `python -m experiments.retrofit --help`."""

"""Text to packed, memory-mapped examples (pre-training), and the readers of MNLI and SQuAD (fine-tuning)."""

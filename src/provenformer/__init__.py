"""provenformer: Transformers constructed from a function, with a certificate."""

"""Biases by offset: ALiBi, KERPLE, T5 and DeBERTa's buckets."""

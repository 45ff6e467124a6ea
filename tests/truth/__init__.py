"""Measures what llama.cpp itself accounts for, on any build whose source PyPI offers, without a GPU."""

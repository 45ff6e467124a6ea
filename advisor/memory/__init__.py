"""Bytes per device: weights, cache, compute, and the plan that sums them."""

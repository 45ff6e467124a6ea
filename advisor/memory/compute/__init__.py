"""Compute buffers: closed forms with the bounds that planning uses."""

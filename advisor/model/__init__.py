"""What a model is: its blocks, widths and tensors, from the header and the rules."""

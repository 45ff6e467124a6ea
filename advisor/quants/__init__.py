"""What llama-quantize would make of a model: a ggml type for each tensor, bytes, and the model as that file."""

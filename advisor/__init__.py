"""advisor: what fits, how to set it, and how fast it will be, for GGUF models on your own machine."""

__version__ = "0.1.0"

"""Several models that are to be resident together: each with its own settings, all within one machine."""

"""Models: what a reference means, what a GGUF file says about itself, and whether two of them can work together."""

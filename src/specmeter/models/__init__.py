"""Models: references, GGUF headers, downloads, bench models, and whether a target and a draft model fit together."""

"""Perplexity and rates of quantized models: measuring them, plans of several, and the tools that can stand in."""

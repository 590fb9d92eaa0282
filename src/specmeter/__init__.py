"""specmeter: a laboratory for speculative decoding of language models."""

__version__ = "0.1.0"

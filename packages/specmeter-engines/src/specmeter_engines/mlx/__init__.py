"""mlx-lm: speculative decoding with a draft model, as on Apple silicon; the same code computes on other machines' CPUs.

A session is a process of its own (`child`). Models are folders with `config.json` and weights, or `bench:NAME`.
"""

"""onnxruntime-genai: speculative decoding with a draft model, on models that its builder makes of folders.

Its n-grams are left out: on such a model they take a forward for every token. With the policy `adaptive` it chooses the
length of drafts on its own, from one token up to `gamma` (its `min_adaptive_k`).

A session is a process of its own (`child`).
"""

"""Hugging Face transformers: assisted generation, the readable reference of speculative decoding.

A session is a process of its own (`child`), asked by the near side of `engine`. Models are folders with `config.json`
and weights, or `bench:NAME`, which is exported first. With `p_min` the draft's confidence decides how long drafts are
(its `assistant_confidence_threshold`): the first token below it is the last of a draft.
"""

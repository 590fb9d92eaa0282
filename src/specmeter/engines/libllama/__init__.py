"""The instrumented engine: speculative decoding in process, on llama.cpp's own C interface (`llama_binding`).

drafting  where drafted tokens come from
decoder   the loop: draft, verify, accept, roll back, and say where the time went
session   one arm with its models; `child` runs it in a process of its own
engine    all of it as an engine of experiments
"""

"""The instrumented engine: speculative decoding in process, on llama.cpp's own C interface (`llama_binding`).

decoder   the loop: draft, verify, accept, roll back, and say where the time went
session   one arm with its models; `together` runs several requests of it, `child` puts it into a process of its own
spec      what the engine states about itself
engine    all of it as an engine of experiments
"""

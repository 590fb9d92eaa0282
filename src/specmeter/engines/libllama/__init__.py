"""The instrumented engine: speculative decoding in process, on llama.cpp's own C interface (`llama_binding`).

drafting  where drafted tokens come from
policies  how many of them to make; `adaptive` by what they bring and what they cost
decoder   the loop: draft, verify, accept, roll back, and say where the time went
session   one arm with its models; `child` runs it in a process of its own
engine    all of it as an engine of experiments
"""

"""The instrumented engine: speculative decoding in process, on llama.cpp's own C interface (`llama_binding`).

verification  which drafted tokens the target agrees with
drafting      where drafted tokens come from
policies      how many of them to make
decoder       the loop: draft, verify, accept, roll back, and say where the time went
engine        all of it as an engine of experiments, in a process of its own
"""

"""vLLM's server, started from the interpreter that vLLM is installed for.

It is measured as a server that already runs is (the engine `url`), and besides is started, watched and ended here.
Models are folders with `config.json` and weights, or `bench:NAME`.
"""

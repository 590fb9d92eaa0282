"""Quality and rates of models, measured: `specmeter quality`. Reports are records of `specmeter.analysis.quality`.

Both are measured through llama.cpp's C interface, or by its own tools where that is asked for.

    scoring      the probabilities of a text, window by window
    timing       times of prompts and of generations
    child        both in a process of their own
    native       the same by `llama-perplexity` and `llama-bench`
    mlx          rates of models in MLX's format; mlx_folder: what their files say
    measure      all of it for several models, in balanced order
    plan         several models described in a file; planned: its models found or made, and measured
    text         what is read
"""

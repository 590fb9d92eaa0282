"""Records the calls that a program makes of a model server, for `run --sessions` to repeat them."""

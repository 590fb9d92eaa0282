"""Theory: what speculative decoding and devices can do at most. Pure; knows no engine and no run."""

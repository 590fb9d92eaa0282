"""The machine that measures: what it is, what it does meanwhile, and what it consumes."""

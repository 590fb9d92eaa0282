"""One experiment on many machines: a whole invocation to one device, all of them merged into one run."""

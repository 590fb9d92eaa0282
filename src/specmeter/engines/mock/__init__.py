"""The mock engine: no model, a virtual clock. `spec` says what it is, `engine` runs it."""

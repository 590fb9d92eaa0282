"""The engine of servers that already run. `spec` says what it is, `engine` and `session` measure."""

"""The commands that this package brings."""

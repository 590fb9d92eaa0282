"""Bundled experiment files."""

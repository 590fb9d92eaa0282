"""Catalogues: `devices` with their peak bandwidth, `models` with their shapes."""

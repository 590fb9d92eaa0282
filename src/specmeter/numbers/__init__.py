"""Statistics: estimates with intervals, rates, tests. Nothing here knows files or engines."""

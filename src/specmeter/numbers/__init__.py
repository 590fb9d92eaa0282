"""Pure arithmetic: statistics, rates, estimates with intervals, gaps in tables. Nothing here knows arms or files."""

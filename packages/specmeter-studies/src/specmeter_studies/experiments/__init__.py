"""Experiments of studies, one YAML file each; `specmeter run NAME` finds them beside those of specmeter."""

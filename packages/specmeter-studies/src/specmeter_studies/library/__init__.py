"""The studies that ship with specmeter: one folder each, read by `specmeter_studies.loading` like a user's own."""

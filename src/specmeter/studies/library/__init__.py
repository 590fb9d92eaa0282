"""The studies that ship with specmeter: one folder each, read by `specmeter.studies.loading` like a user's own."""

"""Importers: results of others in, claims out. They read, bounded and without trust, and judge nothing.

Each format has an `Importer`; `specmeter.audit.reading.FORMATS` names them, and their modules are imported when needed.
"""

"""The tables of a run, with typed and described columns, for Python, files and the documentation."""

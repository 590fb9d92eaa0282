"""How studies and quality reports are shown: on terminals, on pages and as files."""

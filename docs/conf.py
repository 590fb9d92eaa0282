"""The site of the documentation: `uv run --group dev sphinx-build -W docs build/site`.

Its pages are the Markdown files of this folder as they are; `index.rst` gives them an order.
"""

from __future__ import annotations

from specmeter import __version__

project = "specmeter"
author = "The specmeter authors"
version = release = __version__
extensions = ["myst_parser"]
exclude_patterns = ["images"]
html_theme = "furo"
html_title = f"specmeter {__version__}"
html_show_copyright = False
html_show_sphinx = False
myst_heading_anchors = 4
myst_enable_extensions = ["smartquotes"]
myst_links_external_new_tab = False
highlight_language = "none"

"""Building llama.cpp's own programs on this machine: sources, what must be installed, the build itself.

Where they are found afterwards is `engines.native_tools`.
"""

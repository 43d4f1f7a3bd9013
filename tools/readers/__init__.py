"""Real readers: programs of other makers that read what onnxq writes, each in a virtual environment of its own.

`python -m tools.readers` lists and installs them, runs their checks and makes the table of docs/backends.md.
"""

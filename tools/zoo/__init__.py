"""The gate of real models out of packages: quantized for every target, compared with their float originals.

`python -m tools.zoo --help`; docs/zoo.md explains it and holds the tables.
"""

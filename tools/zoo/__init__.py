"""The gate of real models: trained models out of packages, quantized for every target, measured against their float selves.

`python -m tools.zoo --help`; docs/zoo.md explains it and holds the tables.
"""

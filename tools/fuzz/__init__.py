"""A fuzzer of onnxq: damaged and hostile files of every kind that is read, each for a process of its own.

Everything about an input is a function of a seed and a number: `python -m tools.fuzz --seed 7 --case 1234` makes and
runs it again. See docs/fuzzing.md.
"""

"""onnxq's number formats, a file each: everything that is particular to a format is said there and nowhere else.

`onnxq.types.number_format` has what a format answers, and how a plugin adds one. torch is imported by the functions
that compute with it, so that everybody else goes without.
"""

from onnxq.numerics.formats import bfp16, floats, integers, mx, nf4, nnie, nvfp4
from onnxq.types.number_format import add_format

for _format in (*integers.FORMATS, *floats.FORMATS, bfp16.BFP16, *mx.FORMATS, nvfp4.NVFP4, nf4.NF4, nnie.NNIE8):
    add_format(_format)

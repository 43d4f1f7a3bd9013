"""The part of the installation that pyproject.toml has no stable words for: what is computed in C.

C counts histograms and rounds weights five times faster than numpy. Without a compiler onnxq installs all the same, and
numpy does it, with the same results: products and sums are not contracted, because numpy rounds both.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "onnxq.observers._gains",
            ["onnxq/observers/_gains.c"],
            extra_compile_args=["-O3", "-ffp-contract=off"],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "onnxq.observers.statistics._counting",
            ["onnxq/observers/statistics/_counting.c"],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "onnxq.torchnet.fake_quantize._gradients",
            ["onnxq/torchnet/fake_quantize/_gradients.c"],
            include_dirs=["onnxq/numerics"],
            depends=["onnxq/numerics/vectors.h"],
            extra_compile_args=["-O3", "-ffp-contract=off"],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "onnxq.numerics._rounding",
            ["onnxq/numerics/_rounding.c"],
            include_dirs=["onnxq/numerics"],
            depends=["onnxq/numerics/vectors.h"],
            extra_compile_args=["-O3", "-ffp-contract=off"],
            py_limited_api=True,
            optional=True,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""shifty: int8 with power-of-two scales, which the chip holds as shifts."""

from onnxq.targets import BACKENDS
from onnxq.types import Backend, Limits, OpRule, Option, QuantSpec, Scheme

OPTIONS = (Option("average", ("chip", "exact"), "chip", "how averages are computed"),)


def configure(values):
    return Backend(
        name="shifty",
        summary="a vendor's chip: int8 with power-of-two scales",
        scheme=Scheme(QuantSpec("int8", power_of_two=True), QuantSpec("int8", power_of_two=True)),
        rules=(
            OpRule(("Conv", "Gemm"), weight=1, output=True),
            OpRule(("Add",), inputs=(0, 1), output=True),
            OpRule(("GlobalAveragePool",), output=True),
        ),
        limits=Limits(dtypes=("int8",), zero_point_zero=True, power_of_two=True, bias_quantized=False),
        passes=("remove_dead", "constants_to_initializers", "canonicalize_gemm", "fold_batchnorm", "remove_dead"),
        emitters=("qdq", "shifty_table"),
        refinements=("shifty_limit",),
        simulations=("shifty_average",) if values["average"] == "chip" else (),
        lints=("shifty_limit",),
        options=OPTIONS,
        configure=configure,
    )


BACKENDS.add("shifty", configure({"average": "chip"}))

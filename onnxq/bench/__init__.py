"""How long models take: a float one and quantized ones in turns, as a whole and layer by layer."""

from onnxq.bench.measure import Contender, bench
from onnxq.bench.result import Bench

__all__ = ["Bench", "Contender", "bench"]

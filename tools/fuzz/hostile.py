"""Values that programs trip over: names, integers and floats, for every format alike."""

from __future__ import annotations

from random import Random

FORGED_LINE = "error: forged by a name"
"""A line that no program writes; where it begins a line of the output, a name has broken out of its own."""

CODE_FILE = "evil.py"
CODE_MARK = "executed"
CODE = f"open({CODE_MARK!r}, 'w').close()\n\n\ndef run(*_):\n    open({CODE_MARK!r}, 'w').close()\n"
"""A Python file beside every input, which leaves a mark in the current folder when it is run."""

NAMES = (
    f"in/{CODE_FILE}",
    f"in/{CODE_FILE}:run",
    "",
    " ",
    ".",
    "..",
    "/",
    "../../etc/passwd",
    "a/b/c",
    "C:\\x",
    "\x00",
    "null\x00inside",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\",
    "\x9b2J",
    "\u202eright to left",
    f"line\n{FORGED_LINE}",
    "tab\tand\rreturn",
    "[bold]markup[/bold]",
    "{braces} %s %d {0}",
    "op:Conv",
    "re:(a+)+$",
    "re:[",
    "*",
    "日本語",
    "e\u0301\u0301\u0301",
    "\U0001f600",
    "\ufeffbom",
    "n" * 300,
    "long/" * 4000,
    "__proto__",
    "None",
    "nan",
    "-1",
    "a=b,c=d",
    "x:y:z",
    "weight_quantized",
    "x_QuantizeLinear",
)

INTEGERS = (
    *(0, 1, -1, 2, 3, 7, -2, 127, 128, 255, 256, -128, -129, 32767, 65536),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)),
)
"""As ONNX can hold them: 64 bits."""

HUGE_INTEGERS = (2**63, 2**64, -(2**64), 10**30, 10**400)

FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1e-3, 255.0),
    *(1e-45, 1e-40, 1.17549435e-38, 1e-30, 3.4028235e38, -3.4028235e38, 1e30),
    *(float("nan"), float("inf"), float("-inf")),
)


def name(rng: Random) -> str:
    return rng.choice(NAMES)


def integer(rng: Random) -> int:
    return rng.choice(INTEGERS)


def small_integer(rng: Random) -> int:
    return rng.choice((-2, -1, 0, 1, 2, 3, 4, 5, 8, 13))


def float_value(rng: Random) -> float:
    return rng.choice(FLOATS)

"""`python -m tools.avx2 ARGUMENTS`: python ARGUMENTS where onnxruntime sees AVX2 and neither AVX-512 nor VNNI.

Linux on x86-64, with gcc and objdump.
"""

from __future__ import annotations

import os
import sys

from tools.avx2.environment import made


def main() -> None:
    environment = made()
    os.execve(environment.python, [str(environment.python), *sys.argv[1:]], environment.variables())


if __name__ == "__main__":
    main()

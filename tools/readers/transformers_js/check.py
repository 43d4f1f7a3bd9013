"""Lets transformers.js load a folder by its dtypes and embed texts, with files of this machine alone.

    check.py FOLDER TEXTS.txt DTYPES

Prints one JSON object: dtype -> the least cosine between an embedding and that of the float model.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> None:
    script = Path(__file__).with_name("check.mjs")
    environment = Path(sys.prefix)
    done = subprocess.run(["node", str(script), str(environment), *sys.argv[1:4]], text=True, stdout=subprocess.PIPE)
    print(done.stdout.strip())
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

"""python with_effort_0.py SCRIPT [ARGUMENT ...]: the script, with calibration alone as the default effort."""

import runpy
import sys
from pathlib import Path

from onnxq.config import Config

Config.model_fields["effort"].default = 0
Config.model_rebuild(force=True)
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")

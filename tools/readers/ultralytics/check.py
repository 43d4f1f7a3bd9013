"""Lets Ultralytics prepare images as its predictor does before a model sees them.

    check.py FOLDER HEIGHT WIDTH OUT.npz

Writes one array [3, height, width] for each image of FOLDER, under its file name. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import torch
import ultralytics
from ultralytics.data.augment import LetterBox


def prepared(path: Path, size: tuple[int, int]) -> np.ndarray:
    """What `BasePredictor.preprocess` does to one image that `cv2.imread` has read."""
    fitted = LetterBox(size, auto=False, stride=32)(image=cv2.imread(str(path)))
    channels_first = torch.from_numpy(fitted).unsqueeze(0).permute(0, 3, 1, 2).contiguous().flip(1)
    return channels_first.float().div_(255)[0].numpy()


def main() -> None:
    folder, height, width, out = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    images = {path.name: prepared(path, (height, width)) for path in sorted(folder.iterdir())}
    np.savez(out, **images)
    print(json.dumps({"version": ultralytics.__version__, "opencv": cv2.__version__, "images": len(images)}))


if __name__ == "__main__":
    main()

"""Feeds of models that see pictures, normalised as the packages do that the models come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from onnxq.demo import load_data
from tools.bench.samples import Feed
from tools.zoo import pictures
from tools.zoo.packages import Cache

Maker = Callable[[np.random.Generator, bool], Feed]
"""One feed; the truth value says whether it is one of the held samples, which onnxq never sees."""
MakeFeeds = Callable[[Cache, Path], Maker]
"""What makes feeds, from the cache and the file of the model."""
Drawn = Callable[[list[Image.Image], np.random.Generator], np.ndarray]

IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def unit(picture: np.ndarray) -> np.ndarray:
    """RGB in [0, 1], channels first."""
    return planes(picture / 255)


def signed(picture: np.ndarray) -> np.ndarray:
    """BGR in [-1, 1], channels first."""
    return planes(picture[:, :, ::-1] / 127.5 - 1)


def imagenet(picture: np.ndarray) -> np.ndarray:
    return planes((picture / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_DEVIATION))


def bytes_rgb(picture: np.ndarray) -> np.ndarray:
    return planes(picture)


def bytes_bgr(picture: np.ndarray) -> np.ndarray:
    return planes(picture[:, :, ::-1])


def signed_last(picture: np.ndarray) -> np.ndarray:
    """RGB in [-1, 1], channels last."""
    return np.ascontiguousarray((picture / 127.5 - 1)[None], dtype=np.float32)


def grey_signed(picture: np.ndarray) -> np.ndarray:
    return ((picture.mean(axis=2) / 255 - 0.5) / 0.5)[None, None].astype(np.float32)


def planes(picture: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None], dtype=np.float32)


def drawn(
    name: str, draw: Drawn, normalise: Callable[[np.ndarray], np.ndarray], photographs: bool = False
) -> MakeFeeds:
    """Feeds of one input from a function that draws a picture, with all photographs where it needs them."""

    def make(cache: Cache, model: Path) -> Maker:
        scenes = pictures.opened(cache, pictures.SCENES) if photographs else []
        return lambda random, held: {name: normalise(draw(scenes, random))}

    return make


def people(name: str, size: int, normalise: Callable[[np.ndarray], np.ndarray]) -> MakeFeeds:
    """Crops of photographs of people."""

    def make(cache: Cache, model: Path) -> Maker:
        portraits = pictures.opened(cache, pictures.PORTRAITS)

        def one(random: np.random.Generator, held: bool) -> Feed:
            portrait = portraits[int(random.integers(0, len(portraits)))]
            return {name: normalise(pictures.square(portrait, random, size))}

        return one

    return make


def faces(name: str, size: int, normalise: Callable[[np.ndarray], np.ndarray]) -> MakeFeeds:
    def make(cache: Cache, model: Path) -> Maker:
        portraits = pictures.opened(cache, pictures.PORTRAITS)
        return lambda random, held: {name: normalise(pictures.face(portraits, random, size))}

    return make


def scene(scenes: list[Image.Image], random: np.random.Generator, size: int) -> np.ndarray:
    return pictures.crop(scenes[int(random.integers(0, len(scenes)))], random, (size, size), least=0.4)


def digits(cache: Cache, model: Path) -> Maker:
    """Real handwritten digits: those for training to calibrate, those for tests are held."""
    data = load_data()

    def one(random: np.random.Generator, held: bool) -> Feed:
        images = data.test_images if held else data.train_images
        return {"image": images[int(random.integers(0, len(images)))][None]}

    return one


def turned(random: np.random.Generator, picture: np.ndarray, quarters: tuple[int, ...]) -> np.ndarray:
    """The picture turned by one of these numbers of right angles."""
    return np.rot90(picture, int(random.choice(quarters))).copy()

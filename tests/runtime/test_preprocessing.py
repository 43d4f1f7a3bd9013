"""Declared preprocessing: read from text, tables and presets; what makes no sense is refused with the key."""

from dataclasses import replace

import pytest

from onnxq.config import read_config
from onnxq.errors import ConfigError
from onnxq.runtime.preprocessing import PRESETS, Preprocessing, read_preprocessing

IMAGENET = {
    "resize": 256,
    "crop": 224,
    "scale": 1 / 255,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}


def test_text_table_and_preset_say_the_same():
    wanted = Preprocessing(**IMAGENET)
    assert read_preprocessing("imagenet") == wanted
    assert read_preprocessing({"preset": "imagenet"}) == wanted
    assert read_preprocessing({**IMAGENET, "mean": [0.485, 0.456, 0.406]}) == wanted
    text = "resize=256,crop=224, scale=1/255 ,mean=0.485/0.456/0.406,std=0.229/0.224/0.225"
    assert read_preprocessing(text) == wanted
    assert read_preprocessing(wanted) is wanted
    assert read_preprocessing(None) is None


def test_a_preset_can_be_changed():
    wanted = replace(PRESETS["imagenet"], color="BGR", crop=(192, 160))
    assert read_preprocessing("imagenet,color=BGR,crop=192/160") == wanted
    assert read_preprocessing({"preset": "imagenet", "color": "BGR", "crop": [192, 160]}) == wanted


def test_one_number_is_for_all_channels_and_scale_may_be_a_fraction():
    steps = read_preprocessing("scale=0.5,mean=-1,std=2,fit=letterbox,fill=0,resize=480/640,layout=NHWC")
    assert steps == Preprocessing(scale=0.5, mean=-1, std=2, fit="letterbox", fill=0, resize=(480, 640), layout="NHWC")
    assert read_preprocessing({"scale": "1/127.5"}).scale == 1 / 127.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("imagnet", "there is no preset 'imagnet'. Did you mean 'imagenet'"),
        ("?", "there is no preset '?'. Known: imagenet, unit, signed, yolo; or settings such as resize=256"),
        ("unit,imagenet", "'imagenet' is not key=value"),
        ("resize=", "'resize=' is not key=value"),
        ("mean=1,mean=2", "'mean' is given twice"),
        ("rezise=3", "unknown setting 'rezise'. Did you mean 'resize'?"),
        ("resize=0", "resize is a whole number or height and width, above 0, not 0"),
        ("resize=1.5", "resize is a whole number"),
        ("crop=1/2/3", "crop is a whole number"),
        ("crop=big", "crop is a whole number"),
        ("color=rgb", "color is one of RGB, BGR, GRAY, not 'rgb'"),
        ("layout=HWC", "layout is one of NCHW, NHWC"),
        ("interpolation=area", "interpolation is one of nearest, bilinear, bicubic, lanczos"),
        ("fit=pad", "fit is one of stretch, letterbox"),
        ("fill=300", "fill is a pixel value from 0 to 255, not 300"),
        ("fit=letterbox,resize=640", "fit letterbox needs resize = [height, width], such as [640, 640]"),
        ("std=0", "std must be above 0"),
        ("std=1/0/1", "std must be above 0"),
        ("mean=a/b", "mean is a number or a list of numbers, not 'a/b'"),
        ("mean=nan", "mean is a number or a list of numbers"),
        ("scale=1/0", "scale is a number or a fraction such as 1/255, not '1/0'"),
        ("scale=1/2/3", "scale is a number or a fraction"),
        ({"scale": [1, 2, 3]}, "scale is one number for all channels"),
        ({"resize": True}, "resize is a whole number"),
        ({"preset": ["unit"]}, "there is no preset ['unit']"),
        (7, "preprocess is the name of a preset or a table of settings, not a int"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    for read in (read_preprocessing, lambda value: read_config({"preprocess": value})):
        with pytest.raises(ConfigError) as error:
            read(given)
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", '[preprocess]\npreset = "signed"\nresize = [32, 48]\nmean = [0.1, 0.2, 0.3]\n'),
        ("c.yaml", "preprocess:\n  preset: signed\n  resize: [32, 48]\n  mean: [0.1, 0.2, 0.3]\n"),
        ("c.json", '{"preprocess": {"preset": "signed", "resize": [32, 48], "mean": [0.1, 0.2, 0.3]}}'),
        ("short.toml", 'preprocess = "signed,resize=32/48,mean=0.1/0.2/0.3"\n'),
    ],
)
def test_a_configuration_file_holds_it(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    wanted = Preprocessing(resize=(32, 48), scale=1 / 255, mean=(0.1, 0.2, 0.3), std=0.5)
    config = read_config(tmp_path / name)
    assert read_preprocessing(config.preprocess) == wanted
    stored = read_config(config.model_dump(mode="json", exclude_defaults=True))
    assert read_preprocessing(stored.preprocess) == wanted


def test_a_configuration_takes_the_value_itself():
    wanted = Preprocessing(**IMAGENET, color="BGR")
    config = read_config({"preprocess": wanted})
    assert read_preprocessing(config.model_dump(mode="json")["preprocess"]) == wanted

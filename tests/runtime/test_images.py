"""Images as samples, against Pillow and numpy by hand and against the formulas that torchvision publishes."""

import sys

import numpy as np
import pytest

from onnxq.errors import ConfigError, DataError
from onnxq.runtime.dataset import InputInfo, open_dataset

pillow = pytest.importorskip("PIL.Image")


def tensor(*shape, dtype=np.float32):
    return InputInfo("image", np.dtype(dtype), shape)


ANY = tensor("n", 3, "h", "w")
FIXED = tensor("n", 3, 20, 30)
BYTES = tensor("n", 3, "h", "w", dtype=np.uint8)


def pixels(height=40, width=60, channels=3, seed=0):
    """Smooth enough that JPEG and interpolation keep it recognisable, different in every channel."""
    y, x = np.mgrid[:height, :width]
    planes = [128 + 100 * np.sin(x / (7 + c + seed)) * np.cos(y / (5 + c)) for c in range(channels)]
    return np.stack(planes, axis=-1).astype(np.uint8)


def save(path, values, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pillow.fromarray(values.squeeze()).save(path, **options)
    return path


@pytest.fixture
def photo(tmp_path):
    return save(tmp_path / "photo.png", pixels())


def only(source, info, preprocess=None):
    (feed,) = open_dataset(source, [info], preprocess=preprocess)
    return feed["image"]


def test_imagenet_as_torchvision_computes_it(tmp_path):
    # Resize(256), CenterCrop(224), ToTensor(), Normalize(mean, std) of torchvision, written out.
    values = pixels(300, 451)
    image = pillow.fromarray(values).resize((int(256 * 451 / 300), 256), pillow.Resampling.BILINEAR)
    top, left = round((256 - 224) / 2.0), round((image.width - 224) / 2.0)
    cropped = np.asarray(image)[top : top + 224, left : left + 224]
    scaled = cropped.transpose(2, 0, 1).astype(np.float32) / np.float32(255)
    mean, std = (np.array(v, np.float32)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    found = only(save(tmp_path / "wide.png", values), tensor("n", 3, 224, 224), "imagenet")
    # Three roundings in float32 there, one here.
    np.testing.assert_allclose(found[0], (scaled - mean) / std, rtol=0, atol=5e-7)
    tall = only(save(tmp_path / "tall.png", values.transpose(1, 0, 2)), ANY, "resize=256")
    assert tall.shape == (1, 3, int(256 * 451 / 300), 256)


def test_without_settings_pixels_become_0_to_1_in_the_models_size_with_a_note(photo):
    dataset = open_dataset(photo, [FIXED])
    (feed,) = dataset
    by_hand = np.asarray(pillow.fromarray(pixels()).resize((30, 20), pillow.Resampling.BILINEAR))
    assert feed["image"].dtype == np.float32
    assert np.array_equal(feed["image"][0], (by_hand.transpose(2, 0, 1) / 255).astype(np.float32))
    assert dataset.notes[0].startswith("pixels were scaled to 0..1 and nothing else")
    assert dataset.notes[1].startswith("images were stretched to 20 x 30")
    assert open_dataset(photo, [FIXED], preprocess="unit,resize=20/30").notes == ()


def test_a_model_with_free_size_gets_images_as_they_are(tmp_path):
    for number, size in enumerate([(5, 8), (7, 3)]):
        save(tmp_path / f"{number}.png", pixels(*size))
    dataset = open_dataset(tmp_path, [ANY], preprocess="unit")
    assert len(dataset) == 2
    assert [feed["image"].shape for feed in dataset] == [(1, 3, 5, 8), (1, 3, 7, 3)]


@pytest.mark.parametrize(("preset", "low", "high"), [("unit", 0, 1), ("signed", -1, 1)])
def test_presets_for_ranges_reach_both_ends(tmp_path, preset, low, high):
    values = np.zeros((2, 2, 3), np.uint8)
    values[0] = 255
    found = only(save(tmp_path / "x.png", values), ANY, preset)
    assert (found.min(), found.max()) == (low, high)


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic", "lanczos"])
def test_interpolations_are_those_of_pillow(photo, name):
    by_hand = pillow.fromarray(pixels()).resize((30, 20), pillow.Resampling[name.upper()])
    found = only(photo, BYTES, {"resize": [20, 30], "interpolation": name})
    assert np.array_equal(found[0], np.asarray(by_hand).transpose(2, 0, 1))


def test_crop_takes_the_middle_without_resizing(photo):
    found = only(photo, BYTES, {"crop": [10, 21]})
    top, left = (40 - 10) // 2, round((60 - 21) / 2)
    assert np.array_equal(found[0], pixels()[top : top + 10, left : left + 21].transpose(2, 0, 1))


def test_letterbox_keeps_the_shape_and_fills_the_border(photo):
    found = only(photo, BYTES, {"resize": [64, 64], "fit": "letterbox", "fill": 9})[0]
    inner = pillow.fromarray(pixels()).resize((64, 43), pillow.Resampling.BILINEAR)  # 40 * 64 / 60 = 42.67
    assert found.shape == (3, 64, 64)
    assert np.array_equal(found[:, 10:53], np.asarray(inner).transpose(2, 0, 1))
    assert set(np.unique(found[:, :10])) == set(np.unique(found[:, 53:])) == {9}
    gray = only(photo, tensor(1, 1, 64, 64, dtype=np.uint8), {"fit": "letterbox", "fill": 9})
    assert set(np.unique(gray[0, 0, :10])) == {9}


def test_colors_and_their_means(photo):
    values = pixels().astype(np.float64)
    mean, std = [104.0, 117.0, 123.0], [2.0, 4.0, 8.0]
    blue_first = only(photo, ANY, {"color": "BGR", "scale": 1, "mean": mean, "std": std})[0]
    for channel, source in enumerate((2, 1, 0)):
        wanted = (values[:, :, source] - mean[channel]) / std[channel]
        assert np.array_equal(blue_first[channel], wanted.astype(np.float32))
    gray = only(photo, tensor("n", 1, "h", "w"), "unit")[0, 0]
    luma = np.asarray(pillow.fromarray(pixels()).convert("L"))
    assert np.array_equal(gray, (luma / 255).astype(np.float32))
    np.testing.assert_allclose(gray * 255, values @ [0.299, 0.587, 0.114], atol=1)


def test_layout_follows_the_input_or_the_setting(photo):
    assert only(photo, tensor("n", "h", "w", 3)).shape == (1, 40, 60, 3)
    first = only(photo, tensor("n", 3, "h", "w"))
    assert np.array_equal(only(photo, tensor("n", "h", "w", 3)), first.transpose(0, 2, 3, 1))
    free = tensor(None, None, None, None)
    assert only(photo, free, {"layout": "NHWC"}).shape == (1, 40, 60, 3)
    assert only(photo, free, {"layout": "NCHW", "color": "GRAY"}).shape == (1, 1, 40, 60)


def test_integer_inputs_get_pixels_as_they_are(photo):
    dataset = open_dataset(photo, [BYTES])
    (feed,) = dataset
    assert feed["image"].dtype == np.uint8
    assert np.array_equal(feed["image"][0], pixels().transpose(2, 0, 1))
    assert dataset.notes[0].startswith("pixels were fed as 0..255")
    signed = only(photo, tensor("n", 3, "h", "w", dtype=np.int8), {"mean": 128})
    assert np.array_equal(signed[0], pixels().transpose(2, 0, 1).astype(int) - 128)
    halved = only(photo, BYTES, {"scale": 0.5})
    assert np.array_equal(halved[0], np.rint(pixels().transpose(2, 0, 1) / 2))


def test_float16_inputs_get_float16(photo):
    found = only(photo, tensor("n", 3, "h", "w", dtype=np.float16), "signed")
    assert found.dtype == np.float16
    assert np.array_equal(found[0], ((pixels().transpose(2, 0, 1) / 255 - 0.5) / 0.5).astype(np.float16))


@pytest.mark.parametrize("fixed", [True, False])
def test_exif_orientation_is_applied(tmp_path, fixed):
    exif = pillow.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn clockwise to look at it
    path = save(tmp_path / "turned.png", pixels(), exif=exif)
    upright = np.rot90(pixels(), -1)
    assert upright.shape == (60, 40, 3)
    info = tensor(1, 3, 60, 40, dtype=np.uint8) if fixed else BYTES
    assert np.array_equal(only(path, info)[0], upright.transpose(2, 0, 1))


def test_folders_are_read_with_what_is_in_them_by_relative_path(tmp_path):
    names = ["b/2.PNG", "a.bmp", "b/1.jpg", "c.webp", "b/c/0.jpeg"]
    for number, name in enumerate(names):
        save(tmp_path / name, np.full((8, 8, 3), 40 * number, np.uint8))
    save(tmp_path / ".hidden" / "x.png", pixels())
    (tmp_path / "._a.bmp").write_text("what some systems leave beside files")
    (tmp_path / "labels.txt").write_text("0 1 2")
    dataset = open_dataset(tmp_path, [BYTES])
    assert dataset.description == f"folder {tmp_path} (5 images)"
    assert len(dataset) == 5
    for _ in range(2):
        order = [round(float(feed["image"].mean()) / 40) for feed in dataset]
        assert [names[number] for number in order] == sorted(names)
    assert len(list(open_dataset(tmp_path, [BYTES], limit=2))) == 2


def test_jpeg_is_decoded_by_pillow(tmp_path):
    path = save(tmp_path / "photo.jpg", pixels())
    assert np.array_equal(only(path, BYTES)[0], np.asarray(pillow.open(path)).transpose(2, 0, 1))


def test_a_fixed_batch_takes_several_images_and_leaves_out_the_rest(tmp_path):
    for number in range(5):
        save(tmp_path / f"{number}.png", np.full((4, 4, 3), number, np.uint8))
    dataset = open_dataset(tmp_path, [tensor(2, 3, 4, 4, dtype=np.uint8)])
    assert len(dataset) == 2
    assert [feed["image"][:, 0, 0, 0].tolist() for feed in dataset] == [[0, 1], [2, 3]]
    assert "the last 1 of 5 images do not fill a batch of 2, left out" in dataset.notes


def test_palettes_gray_files_and_transparency_become_colors(tmp_path):
    gray = save(tmp_path / "gray.png", pixels(channels=1))
    assert np.array_equal(only(gray, BYTES)[0], np.repeat(pixels(channels=1).transpose(2, 0, 1), 3, axis=0))
    few = pillow.fromarray(pixels()).quantize(16)
    few.save(tmp_path / "palette.png")
    assert np.array_equal(only(tmp_path / "palette.png", BYTES)[0], np.asarray(few.convert("RGB")).transpose(2, 0, 1))
    see_through = np.dstack([pixels(), np.full((40, 60), 7, np.uint8)])
    dataset = open_dataset(save(tmp_path / "alpha.png", see_through), [BYTES])
    assert np.array_equal(next(iter(dataset))["image"][0], pixels().transpose(2, 0, 1))
    assert any("transparency is left out" in note for note in dataset.notes)


def test_images_beside_arrays_are_left_out_with_a_note(tmp_path, photo):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 20, 30), np.float32))
    dataset = open_dataset(tmp_path, [FIXED])
    assert len(dataset) == 1
    assert dataset.notes == (f"folder {tmp_path}: its 1 images are left out, because it holds .npz or .npy files",)


def test_a_function_may_return_a_folder_of_images(tmp_path, photo):
    assert only(lambda: tmp_path, BYTES, "unit,scale=1").shape == (1, 3, 40, 60)


def refused(source, inputs, message, preprocess=None, kind=DataError):
    with pytest.raises(kind) as error:
        list(open_dataset(source, inputs, preprocess=preprocess))
    assert message in str(error.value)


def test_preprocess_for_what_is_no_image_is_refused():
    refused(np.zeros((1, 3, 20, 30), np.float32), [FIXED], "preprocess is for images, but the data is an array", "unit")
    refused([{"image": np.zeros((1, 3, 20, 30), np.float32)}], [FIXED], "leave preprocess out", {"scale": 1})


def test_models_without_a_single_image_input_are_refused(photo):
    refused(photo, [FIXED, tensor("n", 2)], "images feed a model with one input, this one has 'image', 'image'")
    refused(photo, [tensor("n", 100)], "input 'image' is float32 [n, 100], which is no image (rank 4")
    refused(photo, [tensor("n", 16, 8, 8)], "which is no image with 1 or 3 channels")
    refused(photo, [tensor("n", 3, 8, 3)], "can be NCHW or NHWC: set layout in preprocess")
    refused(photo, [tensor("n", 3, 8, 8, dtype=bool)], "which is no image")


def test_settings_that_do_not_fit_the_model_are_named(photo):
    refused(
        photo, [FIXED], "preprocess gives images of 32 x 32, but input 'image' is float32 [n, 3, 20, 30]", "crop=32"
    )
    refused(photo, [FIXED], "set crop = [20, 30] in preprocess", "crop=32")
    refused(photo, [FIXED], "gives images of 20 x 31", "resize=20/31")
    refused(photo, [FIXED], "or resize = [20, 30]", "resize=20/31")
    refused(photo, [FIXED], f"'{photo}' gives images of 25 x 37", "resize=25")
    refused(photo, [tensor("n", 3, "h", 30)], "set crop = [25, 30] in preprocess", "resize=25")
    refused(photo, [FIXED], "with layout NCHW it has 3 channels, GRAY has 1. Change color in preprocess", "color=GRAY")
    refused(photo, [FIXED], "with layout NHWC it has 30 channels, RGB has 3. Change layout", "layout=NHWC")
    refused(photo, [FIXED], "mean in preprocess has 2 numbers, but images have 3 channels", "mean=1/2")
    refused(photo, [ANY], "fit letterbox needs a size to fill: set resize", "fit=letterbox")
    refused(photo, [BYTES], "but pixels become -128 .. 127: change scale, mean or std", "mean=128")


def test_images_too_small_for_the_crop_are_named(photo):
    refused(photo, [ANY], f"'{photo}' is 40 x 60 before cropping, too small for a crop of 50 x 50", "crop=50")


def test_images_of_different_sizes_cannot_share_a_batch(tmp_path, photo):
    save(tmp_path / "z.png", pixels(30, 30))
    refused(tmp_path, [tensor(2, 3, "h", "w")], "but they share a batch of 2: set resize = [height, width]")


def test_too_few_images_for_a_batch_say_so(photo):
    refused(photo, [tensor(4, 3, 20, 30)], "holds no samples: give at least one")
    refused(photo, [tensor(4, 3, 20, 30)], "the last 1 of 1 images do not fill a batch of 4")


@pytest.mark.parametrize("name", ["photo.png", "photo.jpg", "photo.bmp", "photo.webp"])
@pytest.mark.parametrize("info", [FIXED, ANY])
def test_broken_images_are_named(tmp_path, name, info):
    path = save(tmp_path / name, np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8))
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"no image at all"):
        path.write_bytes(broken)
        refused(tmp_path, [info], f"cannot read image '{path}'")


def test_pixels_of_16_bits_are_refused_rather_than_cut(tmp_path):
    path = save(tmp_path / "deep.png", np.full((8, 8), 40000, np.uint16))
    refused(path, [tensor("n", 1, "h", "w")], f"'{path}' has pixels of mode I;16, not 8 bits")


def test_indexed_colors_without_a_palette_are_named(tmp_path):
    path = tmp_path / "indexed.png"
    pillow.fromarray(np.zeros((8, 8), np.uint8)).convert("P").save(path)
    whole = path.read_bytes()
    start = whole.index(b"PLTE") - 4
    end = start + 12 + int.from_bytes(whole[start : start + 4], "big")
    path.write_bytes(whole[:start] + whole[end:])
    refused(path, [tensor("n", 3, "h", "w")], f"'{path}' has indexed colors and no palette")


def test_an_empty_folder_is_named(tmp_path):
    refused(tmp_path, [FIXED], f"folder '{tmp_path}' holds no .npz or .npy file and no image")


def test_without_pillow_the_extra_is_named(photo, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    refused(photo, [FIXED], "pip install pillow", kind=ConfigError)

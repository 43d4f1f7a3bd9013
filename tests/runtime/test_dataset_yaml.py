"""data.yaml of Ultralytics as calibration data."""

import numpy as np
import pytest

from onnxq.errors import DataError
from onnxq.runtime.dataset import InputInfo, open_dataset
from onnxq.runtime.dataset_yaml import dataset_images, named_dataset
from onnxq.runtime.sources import holds_images, names_function

pillow = pytest.importorskip("PIL.Image")

INPUT = InputInfo("images", np.dtype(np.float32), ("n", 3, 8, 8))


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 3), ("val", 2)):
        for number in range(count):
            place = tmp_path / "set/images" / split / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            pillow.fromarray(np.full((6, 9, 3), 10 * number + len(split), np.uint8)).save(place)
    return tmp_path


def written(folder, text):
    path = folder / "data.yaml"
    path.write_text(text)
    return path


def names(path, split="val"):
    return [image.relative_to(path.parent).as_posix() for image in dataset_images(path, split)]


def test_val_is_read_unless_another_split_is_named(folder):
    path = written(folder, "path: set\ntrain: images/train\nval: images/val\nnames: {0: person}\n")
    for text, count in ((str(path), 2), (f"{path}:train", 3)):
        dataset = open_dataset(text, [INPUT], preprocess="yolo")
        assert len(dataset) == len(list(dataset)) == count
        assert not dataset.notes
    assert f"split train of {path} (3 images)" in open_dataset(f"{path}:train", [INPUT]).description


def test_the_folder_is_that_of_the_file_or_from_here(folder, monkeypatch):
    beside = written(folder / "set", "train: images/train\nval: images/val\n")
    assert names(beside) == ["images/val/0.png", "images/val/1.png"]
    (folder / "yaml").mkdir()
    monkeypatch.chdir(folder)
    apart = written(folder / "yaml", "path: set\nval: images/val\n")
    assert [image.as_posix() for image in dataset_images(apart, "val")] == [
        "set/images/val/0.png",
        "set/images/val/1.png",
    ]


def test_lists_of_images_and_lists_of_folders(folder):
    (folder / "set/some.txt").write_text("./images/val/1.png\n\n./images/train/2.png\n./labels.csv\n")
    (folder / "set/labels.csv").write_text("")
    path = written(folder, "path: set\nval: some.txt\ntest: [images/val, images/train, images/val]\n")
    assert names(path) == ["set/images/train/2.png", "set/images/val/1.png"]
    assert len(names(path, "test")) == 5


def test_a_folder_that_once_stood_beside_is_found_as_ultralytics_finds_it(folder):
    assert len(names(written(folder, "path: set\nval: ../images/val\n"))) == 2


def test_which_texts_name_a_data_set(tmp_path):
    assert named_dataset("a/data.yaml")[1] == "val"
    assert named_dataset("data.yml:test")[1] == "test"
    assert named_dataset("module:function") is None
    assert not names_function("data.yaml:train")
    assert not holds_images(tmp_path / "data.yaml")
    assert holds_images(written(tmp_path, ""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: images/train\n", "names no images under 'val'. Its splits: train; choose one"),
        ("val: 7\n", "'val' is a folder or a .txt file or a list of them, not 7"),
        ("path: [1]\nval: x\n", "path is the folder of the data set, not [1]"),
        ("path: set\nval: images/gone\n", "and there is no"),
        ("val: empty\n", "there are no images in empty of 'val'"),
        ("val: list.txt\n", "lists 'gone.png', which does not exist"),
        ("just text\n", "is no data set: it must hold keys such as path, train and val"),
        ("val: a\nval: b\n", "line 2 cannot be read: the key 'val' stands twice"),
        ("val: [\n", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(folder, text, message):
    (folder / "empty").mkdir()
    (folder / "list.txt").write_text("gone.png\n")
    with pytest.raises(DataError) as error:
        open_dataset(str(written(folder, text)), [INPUT])
    assert message in str(error.value)
    assert "data.yaml" in str(error.value) or "list.txt" in str(error.value)


def test_the_size_in_the_metadata_is_what_images_are_fitted_into_where_the_model_leaves_it_free(folder):
    path = written(folder, "path: set\nval: images/val\n")
    free = InputInfo("images", np.dtype(np.float32), ("n", 3, "h", "w"), image_size=(16, 24))
    dataset = open_dataset(str(path), [free], preprocess="yolo")
    assert {feed["images"].shape for feed in dataset} == {(1, 3, 16, 24)}
    (note,) = dataset.notes
    assert "fitted into (16, 24) (height, width), which its metadata names as imgsz" in note
    unknown = InputInfo("images", np.dtype(np.float32), ("n", 3, "h", "w"))
    with pytest.raises(DataError, match="fit letterbox needs a size to fill"):
        open_dataset(str(path), [unknown], preprocess="yolo")

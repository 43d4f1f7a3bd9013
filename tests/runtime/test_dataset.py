"""Calibration data: every source gives the same feeds again, and every misfit is named."""

import subprocess
import sys

import numpy as np
import pytest

from onnxq.errors import DataError
from onnxq.runtime.dataset import InputInfo, open_dataset
from onnxq.runtime.random_data import random_dataset

IMAGE = InputInfo("image", np.dtype(np.float32), (1, 3, 4, 4))
DYNAMIC = InputInfo("image", np.dtype(np.float32), ("batch", 3, 4, 4))
BATCH_4 = InputInfo("image", np.dtype(np.float32), (4, 3, 4, 4))
TOKENS = InputInfo("tokens", np.dtype(np.int64), ("batch", "length"))
MASK = InputInfo("mask", np.dtype(np.float32), ("batch", "length"))
SCALAR = InputInfo("gain", np.dtype(np.float32), ())


def images(count=6):
    return np.random.default_rng(0).normal(size=(count, 3, 4, 4)).astype(np.float32)


def same_feeds(dataset, expected):
    """Both passes give exactly the expected feeds, in the model's dtypes."""
    for _ in range(2):
        feeds = list(dataset)
        assert len(feeds) == len(expected)
        for feed, wanted in zip(feeds, expected, strict=True):
            assert feed.keys() == wanted.keys()
            for name in wanted:
                assert feed[name].dtype == wanted[name].dtype
                assert feed[name].shape == wanted[name].shape
                assert feed[name].tobytes() == wanted[name].tobytes()


def one_by_one(stack):
    return [{"image": stack[i : i + 1]} for i in range(len(stack))]


class Reader:
    """As onnxruntime's CalibrationDataReader: an iterator of feeds with get_next()."""

    def __init__(self, feeds):
        self.feeds = feeds
        self.rest = iter(feeds)

    def get_next(self):
        return next(self.rest, None)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.rest)


class RewindingReader(Reader):
    rewinds = 0

    def rewind(self):
        self.rewinds += 1
        self.rest = iter(self.feeds)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_npz_with_input_names(folder):
    np.savez("calib.npz", image=images())
    dataset = open_dataset("calib.npz", [IMAGE])
    assert len(dataset) == 6
    assert dataset.description == "file calib.npz"
    same_feeds(dataset, one_by_one(images()))
    assert dataset.notes == ()


def test_npz_with_one_array_under_any_name(folder):
    np.savez_compressed("calib.npz", arr_0=images())
    same_feeds(open_dataset(folder / "calib.npz", [DYNAMIC]), one_by_one(images()))


def test_npz_with_several_inputs(folder):
    tokens, mask = np.arange(20).reshape(5, 4), np.ones((5, 4), np.float32)
    np.savez("calib.npz", mask=mask, tokens=tokens)
    dataset = open_dataset("calib.npz", [TOKENS, MASK])
    same_feeds(dataset, [{"tokens": tokens[i : i + 1], "mask": mask[i : i + 1]} for i in range(5)])


def test_npy_is_mapped_and_cut(folder):
    np.save("calib.npy", images())
    same_feeds(open_dataset("calib.npy", [DYNAMIC]), one_by_one(images()))


def test_array_and_dict_of_arrays():
    same_feeds(open_dataset(images(), [IMAGE]), one_by_one(images()))
    same_feeds(open_dataset({"image": images()}, [IMAGE]), one_by_one(images()))


def test_a_fixed_batch_leaves_out_the_remainder_with_a_note():
    dataset = open_dataset(images(11), [BATCH_4])
    assert len(dataset) == 2
    same_feeds(dataset, [{"image": images(11)[:4]}, {"image": images(11)[4:8]}])
    assert dataset.notes == (
        "input 'image': the last 3 of 11 rows of the given array do not fill a batch of 4, left out",
    )


def test_a_dynamic_batch_is_cut_as_asked():
    dataset = open_dataset(images(6), [DYNAMIC], batch=4)
    same_feeds(dataset, [{"image": images(6)[:4]}, {"image": images(6)[4:]}])


def test_limit_counts_feeds():
    dataset = open_dataset(images(), [IMAGE], limit=2)
    assert len(dataset) == 2
    same_feeds(dataset, one_by_one(images())[:2])
    same_feeds(open_dataset(open_dataset(images(), [IMAGE]), [IMAGE], limit=3), one_by_one(images())[:3])


def test_one_sample_without_batch_axis_gets_one():
    same_feeds(open_dataset(images()[0], [IMAGE]), one_by_one(images()[:1]))


def test_one_axis_more_is_a_stack_of_feeds():
    stack = images(8).reshape(2, 4, 3, 4, 4)
    same_feeds(open_dataset(stack, [BATCH_4]), [{"image": stack[0]}, {"image": stack[1]}])


def test_scalars_stack_beside_batches():
    data = {"image": images(3), "gain": np.array([1, 2, 3], np.float32)}
    dataset = open_dataset(data, [DYNAMIC, SCALAR])
    expected = [{"image": images(3)[i : i + 1], "gain": np.array(i + 1, np.float32)} for i in range(3)]
    same_feeds(dataset, expected)


def test_an_input_with_one_value_is_used_for_all_with_a_note():
    dataset = open_dataset({"image": images(3), "gain": np.array(2.0, np.float32)}, [DYNAMIC, SCALAR])
    feeds = list(dataset)
    assert [float(feed["gain"]) for feed in feeds] == [2.0] * 3
    assert dataset.notes == ("input 'gain' has one value in the given arrays: used for all 3 feeds",)


def test_a_dynamic_input_follows_the_fixed_one():
    data = {"image": images(8), "tokens": np.arange(16).reshape(8, 2)}
    feeds = list(open_dataset(data, [BATCH_4, TOKENS]))
    assert [feed["tokens"].shape for feed in feeds] == [(4, 2), (4, 2)]
    ready = list(open_dataset([data], [IMAGE, TOKENS]))
    assert [feed["tokens"].tolist() for feed in ready[:2]] == [[[0, 1]], [[2, 3]]]


def test_folder_files_are_feeds_samples_or_stacks_by_name_order(folder):
    (folder / "data").mkdir()
    np.save("data/b.npy", images(2))
    np.save("data/a.npy", images(1)[0])
    np.savez("data/c.npz", image=images(3))
    (folder / "data" / "readme.txt").write_text("not data")
    parts = [images(1), images(2), images(3)]
    dataset = open_dataset("data", [DYNAMIC])
    assert dataset.description == "folder data (3 files)"
    assert len(dataset) == 3
    same_feeds(dataset, [{"image": part} for part in parts])
    fixed = open_dataset("data", [IMAGE])
    assert len(fixed) == 6
    same_feeds(fixed, [feed for part in parts for feed in one_by_one(part)])


def test_lists_of_feeds_arrays_and_tuples():
    feeds = one_by_one(images())
    same_feeds(open_dataset(feeds, [IMAGE]), feeds)
    assert len(open_dataset(feeds, [IMAGE])) == 6
    same_feeds(open_dataset([feed["image"] for feed in feeds], [IMAGE]), feeds)
    tokens, mask = np.ones((1, 4), np.int64), np.ones((1, 4), np.float32)
    same_feeds(open_dataset([(tokens, mask)], [TOKENS, MASK]), [{"tokens": tokens, "mask": mask}])


def test_a_ready_feed_keeps_its_dynamic_batch():
    same_feeds(open_dataset([{"image": images(5)}], [DYNAMIC]), [{"image": images(5)}])


def test_tensors_that_carry_gradients_are_fetched():
    class Tensor:
        def __init__(self, values):
            self.values = values

        def detach(self):
            return self

        def cpu(self):
            return self.values

        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("detach first")

    same_feeds(open_dataset([{"image": Tensor(images(1))}], [IMAGE]), one_by_one(images(1)))


def test_a_generator_is_read_lazily_and_kept():
    read = []

    def generate():
        for i, feed in enumerate(one_by_one(images())):
            read.append(i)
            yield feed

    dataset = open_dataset(generate(), [IMAGE])
    next(iter(dataset))
    assert read == [0]
    with pytest.raises(TypeError, match="not known before they are read"):
        len(dataset)
    same_feeds(dataset, one_by_one(images()))
    assert read == [0, 1, 2, 3, 4, 5]
    assert len(dataset) == 6


def test_a_generator_function_is_called_for_each_pass():
    calls = []

    def generate():
        calls.append(1)
        yield from one_by_one(images())

    same_feeds(open_dataset(generate, [IMAGE]), one_by_one(images()))
    assert len(calls) == 2


@pytest.mark.parametrize("kind", [Reader, RewindingReader])
def test_a_calibration_data_reader(kind):
    reader = kind(one_by_one(images()))
    dataset = open_dataset(reader, [IMAGE])
    same_feeds(dataset, one_by_one(images()))
    assert dataset.description == f"data reader {kind.__name__}"
    assert getattr(reader, "rewinds", 2) == 2


@pytest.mark.parametrize(
    "body", ["return 'calib.npz'", "return numpy.load('calib.npz')['image']", "yield from feeds()"]
)
def test_a_function_of_a_module_in_the_current_folder(folder, body, request):
    np.savez("calib.npz", image=images())
    module = f"calibration_module_{abs(hash(request.node.name))}"
    (folder / f"{module}.py").write_text(
        "import numpy\n"
        "def feeds():\n    return [{'image': row[None]} for row in numpy.load('calib.npz')['image']]\n"
        f"def load():\n    {body}\n"
    )
    before = list(sys.path)
    same_feeds(open_dataset(f"{module}:load", [IMAGE]), one_by_one(images()))
    assert sys.path == before
    with pytest.raises(DataError, match=r"has no function 'laod'. Did you mean 'load'"):
        open_dataset(f"{module}:laod", [IMAGE])


@pytest.mark.parametrize(
    ("info", "given"),
    [
        (IMAGE, np.float64),
        (IMAGE, np.float16),
        (InputInfo("image", np.dtype(np.float16), IMAGE.shape), np.float32),
        (InputInfo("image", np.dtype(np.int64), IMAGE.shape), np.int32),
        (InputInfo("image", np.dtype(np.int32), IMAGE.shape), np.int64),
    ],
)
def test_numbers_of_one_kind_are_converted_with_one_note(info, given):
    data = images(3).astype(given)
    dataset = open_dataset(data, [info])
    same_feeds(dataset, [{"image": data[i : i + 1].astype(info.dtype)} for i in range(3)])
    assert dataset.notes == (f"input 'image': {np.dtype(given).name} data converted to {info.dtype.name}",)


def wrong(source, inputs, message, **options):
    with pytest.raises(DataError) as error:
        list(open_dataset(source, inputs, **options))
    assert message in str(error.value)


def test_no_data_says_how_to_give_it():
    wrong(None, [IMAGE], "-d calib.npz")
    wrong(None, [IMAGE], "--random N")


def test_what_does_not_exist_is_named(folder):
    wrong("nowhere/calib.npz", [IMAGE], "calibration data 'nowhere/calib.npz' does not exist")
    wrong("no_such_module_here:load", [IMAGE], "cannot import 'no_such_module_here'")
    (folder / "empty").mkdir()
    wrong("empty", [IMAGE], "folder 'empty' holds no .npz or .npy file")


def test_files_that_cannot_be_read_are_named(folder):
    (folder / "calib.txt").write_text("1 2 3")
    wrong("calib.txt", [IMAGE], "'calib.txt' is no .npz or .npy file")
    (folder / "broken.npz").write_text("1 2 3")
    wrong("broken.npz", [IMAGE], "cannot read 'broken.npz'")
    (folder / "broken.npy").write_text("1 2 3")
    wrong("broken.npy", [IMAGE], "cannot read 'broken.npy'")


def test_python_objects_in_a_file_are_refused(folder):
    np.savez("objects.npz", np.array([{}, {}]))
    wrong("objects.npz", [InputInfo("image", np.dtype(object), (1,))], "Save plain arrays, not Python objects")


def test_values_of_unknown_type_are_named():
    wrong(7, [IMAGE], "calibration data of type int is not known")
    wrong(["a.npz"], [IMAGE], "feed 0 is a str: give a dict with an array for each of 'image'")
    wrong(lambda: None, [IMAGE], "returned nothing")
    wrong(lambda: lambda: None, [IMAGE], "returned another function instead of data")


def test_input_names_are_checked():
    wrong([{"imgae": images(1)}], [IMAGE], "feed 0 has 'imgae', which is no input of the model. Did you mean 'image'?")
    wrong({"tokens": np.ones((1, 2), int)}, [TOKENS, MASK], "no data for input 'mask', only 'tokens'")
    wrong([{}], [IMAGE], "no data for input 'image', only nothing. The model wants 'image' (float32 [1, 3, 4, 4])")
    wrong(images(), [IMAGE, TOKENS], "the given array holds one array, but the model has the inputs 'image', 'tokens'")


def test_the_wrong_kind_of_number_is_refused():
    data = images(3).astype(np.uint8)
    wrong(
        data,
        [IMAGE],
        "input 'image' of sample 0 (the given array): the model wants float32 [1, 3, 4, 4], got uint8 [1, 3, 4, 4]",
    )
    wrong(images(1), [InputInfo("image", np.dtype(np.int64), IMAGE.shape)], "the model wants int64 [1, 3, 4, 4]")


def test_values_that_do_not_fit_the_type_are_refused():
    info = InputInfo("x", np.dtype(np.int32), ("n",))
    wrong(np.array([1, 2**40]), [info], "sample 1 (the given array): the model wants int32 [n], got int64 [1]: some")
    wrong(np.array([1.0, 1e300]), [InputInfo("x", np.dtype(np.float32), ("n",))], "do not fit into float32")


def test_the_wrong_rank_is_named():
    wrong(np.ones((4, 4), np.float32), [IMAGE], "got an array [4, 4]: rank 2 instead of 4 (or 5 for a stack of feeds)")
    feeds = [*one_by_one(images(1)), {"image": np.ones(3, np.float32)}]
    wrong(feeds, [IMAGE], "input 'image' of feed 1: the model wants float32 [1, 3, 4, 4], got an array [3]: rank 1")


def test_the_wrong_dimension_is_named_with_its_sample():
    feeds = [*one_by_one(images(2)), {"image": np.ones((1, 3, 4, 5), np.float32)}]
    wrong(feeds, [IMAGE], "input 'image' of sample 2 (feed 2): the model wants float32 [1, 3, 4, 4], got float32")
    wrong(feeds, [IMAGE], "dimension 3 is 5 instead of 4")
    wrong(images(3), [BATCH_4], "3 rows do not fill batches of 4")
    wrong([{"image": images(6)}], [BATCH_4], "6 rows do not fill batches of 4")


def test_different_numbers_of_samples_are_named():
    data = {"tokens": np.ones((5, 2), np.int64), "mask": np.ones((3, 2), np.float32)}
    wrong(data, [TOKENS, MASK], "same number of samples: 'tokens' [5, 2] gives 5, 'mask' [3, 2] gives 3 feeds")


def test_no_samples_at_all_is_an_error():
    wrong([], [IMAGE], "(feeds) holds no samples: give at least one")
    wrong(images(0), [IMAGE], "(an array) holds no samples")
    wrong(images(0), [DYNAMIC], "(an array) holds no samples")


def test_limits_below_one_are_refused():
    wrong(images(), [IMAGE], "limit must be at least 1, got 0", limit=0)
    wrong(images(), [DYNAMIC], "batch must be at least 1, got -1", batch=-1)


def test_random_data_fits_the_inputs_and_repeats():
    flags = InputInfo("flags", np.dtype(bool), (None, None))
    inputs = [BATCH_4, TOKENS, MASK, SCALAR, flags]
    dataset = random_dataset(inputs, 3, seed=5)
    feeds = list(dataset)
    same_feeds(dataset, feeds)
    same_feeds(random_dataset(inputs, 3, seed=5), feeds)
    assert len(dataset) == 3
    assert [feeds[0][info.name].shape for info in inputs] == [(4, 3, 4, 4), (1, 8), (1, 8), (), (1, 8)]
    assert all(feeds[0][info.name].dtype == info.dtype for info in inputs)
    assert set(np.unique(feeds[0]["tokens"])) <= {0, 1}
    assert not np.array_equal(feeds[0]["image"], feeds[1]["image"])
    assert not np.array_equal(feeds[0]["image"], next(iter(random_dataset(inputs, 1, seed=6)))["image"])
    assert "random" in dataset.description


def test_random_data_refuses_text_and_nothing():
    with pytest.raises(DataError, match="'words' holds text"):
        list(random_dataset([InputInfo("words", np.dtype(object), (1,))], 1))
    with pytest.raises(DataError, match="at least 1 sample, got 0"):
        random_dataset([IMAGE], 0)


def test_text_inputs_take_text():
    info = InputInfo("words", np.dtype(object), ("n",))
    feeds = list(open_dataset([{"words": np.array(["a", "b"])}], [info]))
    assert feeds[0]["words"].dtype == object
    assert feeds[0]["words"].tolist() == ["a", "b"]


def test_opening_data_does_not_load_onnxruntime():
    code = "import sys, onnxq.runtime.dataset; print('onnxruntime' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False"


def test_the_shapes_of_the_first_feed_are_known_without_reading_it():
    for source, info in (
        (images(7), DYNAMIC),
        (images(8), BATCH_4),
        ({"image": images(3)}, IMAGE),
        ([{"image": images(1)}, {"image": images(1)}], DYNAMIC),
        (images(1)[0], DYNAMIC),
    ):
        dataset = open_dataset(source, [info])
        assert dataset.first_shapes() == {"image": next(iter(dataset))["image"].shape}


def test_the_shapes_of_a_first_feed_that_is_read_once_are_known_and_it_is_not_lost():
    dataset = open_dataset(({"image": images(count)} for count in (2, 3)), [DYNAMIC])
    assert dataset.first_shapes() == {"image": images(2).shape}
    assert [feed["image"].shape for feed in dataset] == [images(2).shape, images(3).shape]
    assert open_dataset(iter([]), [DYNAMIC]).first_shapes() is None

"""Batches of data loaders: labels are left out, every pass asks again, misfits are named."""

from types import SimpleNamespace

import numpy as np
import pytest

from onnxq.errors import DataError
from onnxq.runtime.dataset import InputInfo, open_dataset

IMAGE = InputInfo("image", np.dtype(np.float32), ("batch", 3, 4, 4))
IMAGE_OF_4 = InputInfo("image", np.dtype(np.float32), (4, 3, 4, 4))
TOKENS = InputInfo("tokens", np.dtype(np.int64), ("batch", "length"))
MASK = InputInfo("mask", np.dtype(np.int64), ("batch", "length"))

LABELS_LEFT_OUT = "further elements of each batch (labels) left out"


class SequentialSampler: ...


class RandomSampler: ...


class Loader:
    """Looks like torch.utils.data.DataLoader from outside."""

    def __init__(self, batches, sampler=SequentialSampler):
        self.dataset = SimpleNamespace()
        self.batch_size = 2
        self.sampler = sampler()
        self.batches = batches
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter(self.batches)


class Tensor:
    """Looks like a tensor that carries gradients: it must be detached before numpy can have it."""

    def __init__(self, values):
        self.values = values

    def detach(self):
        return SimpleNamespace(cpu=lambda: self.values)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("detach first")


def images(count):
    return np.random.default_rng(count).normal(size=(count, 3, 4, 4)).astype(np.float32)


def feeds_of(batches, inputs, **options):
    loader = Loader(batches)
    dataset = open_dataset(loader, inputs, **options)
    first, second = list(dataset), list(dataset)
    assert loader.passes == 2
    for one, other in zip(first, second, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    return first, dataset.notes


@pytest.mark.parametrize("kind", [list, tuple])
def test_labels_of_batches_are_left_out_with_one_note(kind):
    batches = [kind((Tensor(images(n)), Tensor(np.arange(n)))) for n in (2, 2, 1)]
    feeds, notes = feeds_of(batches, [IMAGE])
    assert [feed["image"].tolist() for feed in feeds] == [images(n).tolist() for n in (2, 2, 1)]
    assert notes == (LABELS_LEFT_OUT,)


def test_batches_that_are_tensors():
    feeds, notes = feeds_of([Tensor(images(2))], [IMAGE])
    assert np.array_equal(feeds[0]["image"], images(2))
    assert notes == ()


def test_elements_of_a_batch_belong_to_the_inputs_in_their_order():
    tokens, mask = np.arange(6).reshape(2, 3), np.ones((2, 3), np.int64)
    feeds, notes = feeds_of([(tokens, mask, np.zeros(2))], [TOKENS, MASK])
    assert np.array_equal(feeds[0]["tokens"], tokens)
    assert np.array_equal(feeds[0]["mask"], mask)
    assert notes == (LABELS_LEFT_OUT,)
    assert feeds_of([(tokens, mask)], [TOKENS, MASK])[1] == ()


def test_inputs_may_stand_in_a_tuple_or_dict_beside_the_labels():
    tokens, mask = np.arange(6).reshape(2, 3), np.ones((2, 3), np.int64)
    for batch in [((tokens, mask), np.zeros(2)), ({"mask": mask, "tokens": tokens}, np.zeros(2))]:
        feeds, notes = feeds_of([batch], [TOKENS, MASK])
        assert np.array_equal(feeds[0]["tokens"], tokens)
        assert np.array_equal(feeds[0]["mask"], mask)
        assert notes == (LABELS_LEFT_OUT,)


def test_further_keys_of_a_dict_are_left_out_for_loaders_only():
    batch = {"labels": np.zeros(2), "image": images(2), "id": np.arange(2)}
    feeds, notes = feeds_of([batch], [IMAGE])
    assert list(feeds[0]) == ["image"]
    assert notes == ("further keys of each batch (labels, id) left out: the model has no such inputs",)
    with pytest.raises(DataError, match="feed 0 has 'labels', which is no input of the model"):
        list(open_dataset([batch], [IMAGE]))


def test_a_last_batch_that_the_model_cannot_take_is_left_out():
    feeds, notes = feeds_of([[images(4), 0], [images(4), 0], [images(3), 0]], [IMAGE_OF_4])
    assert len(feeds) == 2
    assert "input 'image': the last 3 of 3 rows of batch 2 do not fill a batch of 4, left out" in notes


def test_inputs_with_a_free_batch_follow_the_one_with_a_fixed_batch():
    batch = {"image": images(6), "tokens": np.arange(12).reshape(6, 2)}
    feeds, _ = feeds_of([batch, {"image": images(1), "tokens": np.ones((1, 2), np.int64)}], [IMAGE_OF_4, TOKENS])
    assert [(feed["image"].shape[0], feed["tokens"].tolist()) for feed in feeds] == [
        (4, np.arange(8).reshape(4, 2).tolist())
    ]


def test_a_loader_of_too_small_batches_is_an_error_that_says_why():
    with pytest.raises(DataError, match=r"holds no samples: give at least one.*2 rows of batch 0 do not fill a batch"):
        list(open_dataset(Loader([images(2), images(2)]), [IMAGE_OF_4]))


def test_limit_counts_feeds_of_a_loader():
    assert len(feeds_of([images(2)] * 5, [IMAGE], limit=3)[0]) == 3


def test_a_shuffling_loader_is_noted():
    dataset = open_dataset(Loader([images(1)], RandomSampler), [IMAGE])
    assert any("shuffles (RandomSampler): each pass" in note for note in dataset.notes)
    assert open_dataset(Loader([images(1)]), [IMAGE]).notes == ()


def test_notes_of_a_loader_stay_when_the_dataset_is_opened_again():
    dataset = open_dataset(Loader([(images(1), 0)], RandomSampler), [IMAGE])
    again = open_dataset(dataset, [IMAGE], limit=1)
    list(again)
    assert LABELS_LEFT_OUT in again.notes
    assert any("shuffles" in note for note in again.notes)


def test_a_function_may_return_a_loader():
    dataset = open_dataset(lambda: Loader([(images(2), 0)]), [IMAGE])
    assert np.array_equal(next(iter(dataset))["image"], images(2))


@pytest.mark.parametrize(
    ("batch", "inputs", "message"),
    [
        (
            np.ones((2, 3), int),
            [TOKENS, MASK],
            "batch 0 of the data loader has one ndarray, but the model wants 'tokens'",
        ),
        (
            (np.ones((2, 3), int),),
            [TOKENS, MASK],
            "has 1 elements, but the model wants 'tokens' (int64 [batch, length])",
        ),
        ({"pixels": images(1), "y": 0}, [IMAGE], "batch 0 has 'pixels', which is no input of the model"),
        ({"tokens": np.ones((2, 3), int)}, [TOKENS, MASK], "batch 0 has no data for input 'mask', only 'tokens'"),
        ((images(2)[..., 0], 0), [IMAGE_OF_4], "sample 0 (batch 0): the model wants float32 [4, 3, 4, 4]"),
        ((np.ones((2, 3, 4, 5), np.float32), 0), [IMAGE], "dimension 3 is 5 instead of 4"),
        ((images(2).astype(np.uint8), 0), [IMAGE], "the model wants float32 [batch, 3, 4, 4], got uint8 [2, 3, 4, 4]"),
        (({"a": 1}, {"b": 2}), [IMAGE], "batch 0 has 'a', which is no input"),
        ("words", [IMAGE], "rank 0 instead of 4"),
    ],
)
def test_what_does_not_fit_is_named_with_its_batch(batch, inputs, message):
    with pytest.raises(DataError) as error:
        list(open_dataset(Loader([batch]), inputs))
    assert message in str(error.value)


def test_ragged_values_and_types_without_numpy_twin_are_named():
    ragged = [[1, 2], [3]]
    with pytest.raises(DataError, match=r"'tokens' of batch 0: a list cannot become a numpy array"):
        list(open_dataset(Loader([{"tokens": ragged}]), [TOKENS]))

    class NoTwin:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("Got unsupported ScalarType BFloat16")

    with pytest.raises(DataError, match=r"batch 0: a NoTwin cannot become a numpy array \(Got unsupported"):
        list(open_dataset(Loader([NoTwin()]), [IMAGE]))


class Reader:
    """As onnxruntime's CalibrationDataReader."""

    def __init__(self, feeds):
        self.rest = iter(feeds)

    def get_next(self):
        return next(self.rest, None)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"imgae": images(1)}, "feed 0 has 'imgae', which is no input of the model. Did you mean 'image'?"),
        ({"image": images(1)[:, :2]}, "input 'image' of sample 0 (feed 0): the model wants float32 [batch, 3, 4, 4]"),
        ({"image": images(1).astype(int)}, "the model wants float32 [batch, 3, 4, 4], got int64 [1, 3, 4, 4]"),
    ],
)
def test_what_does_not_fit_from_a_reader_is_named(feed, message):
    with pytest.raises(DataError) as error:
        list(open_dataset(Reader([feed]), [IMAGE]))
    assert message in str(error.value)


def test_a_real_data_loader():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(images(5)), torch.arange(5))
    dataset = open_dataset(torch.utils.data.DataLoader(data, batch_size=2), [IMAGE])
    for _ in range(2):
        assert np.array_equal(np.concatenate([feed["image"] for feed in dataset]), images(5))
    assert dataset.notes == (LABELS_LEFT_OUT,)
    shuffled = open_dataset(torch.utils.data.DataLoader(data, batch_size=2, shuffle=True), [IMAGE])
    assert any("shuffles (RandomSampler)" in note for note in shuffled.notes)

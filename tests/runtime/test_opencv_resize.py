"""cv2.resize without OpenCV: values that OpenCV 4.12 and 5.0 have computed."""

import numpy as np
import pytest

from onnxq.runtime.opencv_resize import resize_linear

IMAGE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)

COMPUTED_BY_OPENCV = {
    (3, 4): [[110, 35, 189, 161], [73, 127, 83, 117], [150, 131, 201, 101]],
    (8, 6): [
        [105, 166, 98, 234, 114, 194],
        [85, 105, 71, 163, 112, 197],
        [59, 31, 41, 73, 112, 194],
        [63, 76, 99, 89, 127, 131],
        [104, 119, 119, 124, 126, 87],
        [181, 161, 101, 177, 109, 61],
        [132, 187, 134, 186, 123, 95],
        [88, 203, 161, 190, 135, 124],
    ],
    (1, 9): [[64, 81, 106, 127, 128, 88, 119, 134, 95]],
}


@pytest.mark.parametrize("size", COMPUTED_BY_OPENCV)
def test_every_pixel_is_that_of_opencv(size):
    found = resize_linear(IMAGE, *size)
    assert found.dtype == np.uint8
    assert found.shape == (*size, 3)
    assert found[:, :, 0].tolist() == COMPUTED_BY_OPENCV[size]


def test_half_the_size_is_the_mean_of_four_pixels():
    image = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    assert resize_linear(image, 3, 4)[:, :, 0].tolist() == [
        [90, 93, 161, 105],
        [159, 95, 142, 133],
        [181, 162, 100, 151],
    ]


def test_each_channel_is_resized_alone_and_the_same_size_is_the_same_image():
    for channel in range(3):
        alone = resize_linear(IMAGE[:, :, channel : channel + 1], 4, 9)
        assert np.array_equal(alone[:, :, 0], resize_linear(IMAGE, 4, 9)[:, :, channel])
    assert np.array_equal(resize_linear(IMAGE, 5, 7), IMAGE)


@pytest.mark.parametrize("value", [0, 1, 127, 255])
@pytest.mark.parametrize("size", [(1, 1), (3, 3), (11, 2), (64, 80)])
def test_a_plain_image_stays_plain_within_a_step(value, size):
    found = resize_linear(np.full((5, 7, 1), value, np.uint8), *size).astype(int)
    assert np.abs(found - value).max() <= 1  # weights of 11 bits are rounded

"""Metrics of language models and encoders, against values that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.errors import ConfigError, DataError
from onnxq.ptq.search.text_metrics import retrieval, token_entropy

TOKENS = np.array([[2, 0, 1, 3]], np.int64)


def logits_that_know(tokens: np.ndarray, certain: float) -> np.ndarray:
    """Logits of four words that give the next token a logit of `certain`, the others 0."""
    logits = np.zeros((*tokens.shape, 4), np.float32)
    for row, line in enumerate(tokens):
        for place, following in enumerate(line[1:]):
            logits[row, place, following] = certain
    return logits


def test_a_model_that_knows_nothing_is_as_good_as_a_guess_among_all_words() -> None:
    found = [{"logits": logits_that_know(TOKENS, 0.0)}]
    assert token_entropy("cross_entropy", [{"input_ids": TOKENS}], found) == pytest.approx(math.log(4))
    assert token_entropy("perplexity", [{"input_ids": TOKENS}], found) == pytest.approx(4)


def test_a_model_that_knows_the_next_token_is_hardly_surprised() -> None:
    found = [{"logits": logits_that_know(TOKENS, 3.0)}]
    expected = -math.log(math.exp(3) / (math.exp(3) + 3))
    assert token_entropy("cross_entropy", [{"input_ids": TOKENS}], found) == pytest.approx(expected)


def test_the_last_place_and_hidden_places_do_not_count() -> None:
    logits = logits_that_know(TOKENS, 3.0)
    known = token_entropy("cross_entropy", [{"input_ids": TOKENS}], [{"logits": logits}])
    logits[:, -1] = np.nan  # predicts what nobody has written
    assert token_entropy("cross_entropy", [{"input_ids": TOKENS}], [{"logits": logits}]) == pytest.approx(known)
    logits[:, 0] = [9, 0, -9, 0]
    mask = np.array([[0, 1, 1, 1]], np.int64)
    feed = {"input_ids": TOKENS, "attention_mask": mask}
    assert token_entropy("cross_entropy", [feed], [{"logits": logits}]) == pytest.approx(known)


def test_samples_count_by_their_tokens() -> None:
    short, long = np.array([[1, 2]], np.int64), np.array([[1, 2, 3, 0]], np.int64)
    found = [{"y": logits_that_know(short, 0.0)}, {"y": logits_that_know(long, 5.0)}]
    each = [token_entropy("cross_entropy", [{"x": ids}], [one]) for ids, one in zip((short, long), found, strict=True)]
    both = token_entropy("cross_entropy", [{"x": short}, {"x": long}], found)
    assert both == pytest.approx((each[0] + 3 * each[1]) / 4)


@pytest.mark.parametrize(
    ("feed", "outputs", "message"),
    [
        ({"input_ids": TOKENS}, {"pooled": np.zeros((1, 4), np.float32)}, "three axes"),
        ({"x": np.zeros((1, 4), np.float32)}, {"y": np.zeros((1, 4, 4), np.float32)}, "there are: none"),
        ({"a": TOKENS, "b": TOKENS}, {"y": np.zeros((1, 4, 4), np.float32)}, "there are: a, b"),
        ({"x": TOKENS}, {"y": np.zeros((1, 2, 4), np.float32)}, "logits for every token"),
    ],
)
def test_what_has_no_next_token_is_an_error(feed, outputs, message) -> None:
    with pytest.raises(ConfigError, match=message):
        token_entropy("perplexity", [feed], [outputs])


def test_the_nearest_text_is_the_same_or_not() -> None:
    # 0 and 1 are alike, 2 and 3 are; the other model has put 1 beside 2.
    ours = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32)
    theirs = np.array([[1, 0], [0.1, 0.98], [0, 1], [0.6, 0.8]], np.float32)
    feeds = [{}] * 4
    same = [{"embedding": row[None]} for row in ours]
    other = [{"embedding": row[None]} for row in theirs]
    assert retrieval(feeds, same, same) == 1.0
    assert retrieval(feeds, same, other) == 0.0


def test_hidden_tokens_are_no_part_of_an_embedding() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 1, 3, 8)).astype(np.float32)
    masks = np.array([[1, 1, 0]], np.int64)
    feeds = [{"attention_mask": masks}] * 4
    changed = values.copy()
    changed[:, :, 2] = rng.normal(size=(4, 1, 8)) * 50
    assert retrieval(feeds, [{"y": one} for one in values], [{"y": one} for one in changed]) == 1.0


def test_two_samples_tell_nothing_about_neighbours() -> None:
    found = [{"y": np.ones((1, 4), np.float32)}] * 2
    with pytest.raises(DataError, match="three samples"):
        retrieval([{}] * 2, found, found)

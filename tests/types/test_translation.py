"""Whether a key of another tool has an effect is a value, which the words about it do not decide."""

from __future__ import annotations

from onnxq.types.translation import Effect, Outcome, Row, Setting, Translation, joined, no_effect, not_supported


def test_notes_and_warnings_are_chosen_by_the_effect() -> None:
    rows = (
        Row("a", "1", Outcome("no effect is what this text speaks of")),
        Row("b", "2", no_effect("it is empty")),
        Row("c", "True", not_supported("equalize layers")),
    )
    translation = Translation("tool", "tensorrt", {}, {}, rows)
    assert translation.idle == ("b: no effect: it is empty",)
    assert translation.unfulfilled == ("c = True: no effect: onnxq does not equalize layers yet",)
    assert [row.to_json()["effect"] for row in rows] == ["applied", "no_effect", "not_supported"]


def test_settings_come_before_further_words() -> None:
    outcome = Outcome(settings=(Setting("dtype", "int8", "dtype = int8"), Setting("bits", 8, "bits = 8")))
    assert str(outcome) == "dtype = int8, bits = 8"
    assert str(outcome.adding("the default").adding("(a note)", " ")) == "dtype = int8, bits = 8, the default (a note)"


def test_a_key_with_several_outcomes_has_an_effect_where_one_of_them_has() -> None:
    nothing, something = no_effect("it is folded", " on a"), Outcome("fuse: b")
    assert joined([nothing, something]) == Outcome("no effect on a: it is folded; fuse: b", Effect.APPLIED)
    assert joined([nothing, nothing]).effect is Effect.NO_EFFECT

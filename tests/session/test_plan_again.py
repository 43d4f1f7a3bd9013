"""A plan that is made anew during a run follows the present settings, not those the model was prepared with."""

from __future__ import annotations

from dataclasses import replace

from onnxq import demo
from onnxq.config import Config
from onnxq.session.session import open_session

BITS = {"classifier": {"weight": {"bits": 4}}}


def test_a_plan_made_again_has_the_bits_of_the_present_settings() -> None:
    data = {"image": demo.load_data().calibration[:4]}
    session = open_session(demo.model_path(), backend="academic", data=data, config={"effort": 0})
    plan = session.plan()
    assert plan["classifier.weight"].spec.bits == 8
    studied = replace(session, settings=Config.model_validate({"effort": 0, "node": BITS}))
    again = studied.plan_again(session.prepared.graph, plan, ())
    assert again["classifier.weight"].spec.bits == 4

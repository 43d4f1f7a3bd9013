"""The diagnosis at the end of a run: only where a result is low, and within what a run of effort 1 takes.

Who asks for calibration alone (effort 0) wants it to be quick: there only a run that fails is diagnosed, and briefly,
unless somebody asks for more.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxq.diagnose.run import AUTOMATIC, BRIEF, diagnose
from onnxq.diagnose.text import summary_lines
from onnxq.errors import one_line_error
from onnxq.graph.write import weight_bytes
from onnxq.mixed_precision.study import Subject
from onnxq.pipeline.explanation import Examine, Explanation, failed_diagnosis
from onnxq.ptq.method import State
from onnxq.ptq.search.stage import LARGE
from onnxq.session.session import Session
from onnxq.verify import ResultCheck

UNTRIED = "not tried: what improves weights and ranges (--effort 1)"


def examiner(session: Session, state: State) -> Examine | None:
    """What to call where a result of `state` is low; None where nobody wants it or it would take too long."""
    config = session.settings
    improved = config.effort > 0 or config.improvements is not None
    whole = improved or "diagnose" in config.model_fields_set
    if session.dataset is None or not config.diagnose or weight_bytes(state.graph.gs) > LARGE:
        return None

    def examine(results: Sequence[ResultCheck], *, failed: bool) -> Explanation | None:
        if not (whole or failed):
            return None
        # Whatever goes wrong here, the run itself counts: its files, or why its checks have failed.
        try:
            worst = [result.samples.worst for result in sorted(results, key=lambda one: one.sqnr_db) if result.samples]
            found = diagnose(Subject(session), state=state, budget=AUTOMATIC if whole else BRIEF, first=worst)
            lines = summary_lines(found) if improved else [*summary_lines(found), UNTRIED]
            return Explanation(tuple(lines), found.to_json(), found.remedied())
        except Exception as error:  # a fault of onnxq or of a plugin, which must not cost what is finished
            return failed_diagnosis(one_line_error(error))

    return examine

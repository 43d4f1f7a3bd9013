"""Result: what a run gives back, with its report as attributes, as text, and as the page in a browser or notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxq.errors import ConfigError
from onnxq.glance import counted, decibels, notebook_html, quoted, short_name, short_repr
from onnxq.json_file import JsonMapping
from onnxq.pipeline.coverage import Coverage
from onnxq.pipeline.figures import decision_line
from onnxq.pipeline.judgement import Light, judged_results
from onnxq.pipeline.report import Report
from onnxq.pipeline.show import ShownPage, show_page
from onnxq.types import QParamsTable, QuantPlan

PAGE = "report.html"

SIGNS = {Light.GOOD: "\u2705 good", Light.LOOK: "\u26a0\ufe0f look", Light.BAD: "\u274c bad", Light.NONE: ""}
"""The lights of the page in text: a sign that needs no colour to be told from the others, and the word."""


@dataclass(repr=False)
class Result:
    """What `quantize` gives back: the written model, the values behind it and the report.

    `report` is what report.json holds (docs/formats.md); what most people ask of it are the attributes below.
    """

    model: Path
    plan: QuantPlan
    qparams: QParamsTable
    report: Report

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.model.parent

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the run has written."""
        return tuple(Path(path) for path in self.report["files"])

    @property
    def page(self) -> Path | None:
        """The page report.html; None where the run was told to leave it out (`report = "no"`)."""
        return next((path for path in self.files if path.name == PAGE), None)

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output -> its signal-to-noise ratio against the float model, inf where both are equal; {} without data."""
        return {name: float(value) for name, value in self.report["sqnr_db"].items()}

    @property
    def worst_sqnr_db(self) -> float | None:
        """The least ratio of all outputs and parts, in the file and as the chip is simulated; None without data."""
        worst = self._worst()
        return None if worst is None else worst[1]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the run wants somebody to know; `onnxq.quantize` has said it through Python's `warnings`, too."""
        return tuple(self.report["warnings"])

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on what was decided on the way."""
        return tuple(self.report["notes"])

    @property
    def coverage(self) -> Coverage:
        """How many nodes run quantized, and why the others do not."""
        return Coverage.of(self.plan)

    @property
    def seconds(self) -> dict[str, float]:
        """Stage of the run -> how long it took."""
        return dict(self.report["seconds"])

    def summary(self) -> str:
        """The text that `onnxq quantize` prints."""
        from onnxq.pipeline.summary import summary_text  # here, because it takes rich

        model = None if self.report["model"] is None else Path(self.report["model"])
        return summary_text(self.report, model if model is not None and model.is_file() else None, self.model)

    def show(self) -> Path | ShownPage:
        """Open the page of the run: in a notebook below the cell, on a screen in the browser; gives back its path."""
        page = self.page
        if page is None or not page.is_file():
            raise ConfigError(
                f"the run has left no {PAGE} in {self.folder}: 'onnxq report {self.folder}' draws it, and so does a "
                'run whose configuration does not say report = "no"'
            )
        return show_page(page)

    def __repr__(self) -> str:
        worst = self._worst()
        return short_repr(
            "Result",
            f"{short_name(self.model.name)} for {short_name(str(self.report['backend']))}",
            f"{self.coverage.fraction:.1%} of {counted(self.coverage.nodes, 'node')} quantized",
            "accuracy not measured" if worst is None else f"worst {decibels(worst[1])} on {quoted(worst[0])}",
            counted(len(self.warnings), "warning") if self.warnings else "",
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: each output and part with its light, coverage and warnings; `show` has the page."""
        coverage = self.coverage
        facts = [
            ("file", str(self.model)),
            ("nodes", f"{coverage.fraction:.1%} of {coverage.nodes:,} quantized or fused"),
            *(("warning", short_name(text, 300)) for text in self.warnings[:5]),
        ]
        if len(self.warnings) > 5:
            facts.append(("", f"and {len(self.warnings) - 5} warnings more, in .warnings"))
        rows = [
            (
                SIGNS[Light(row["light"])],
                ("part " if row["part"] else "") + short_name(row["name"]),
                "" if "sqnr_db" not in row else decibels(row["sqnr_db"]),
                _agreed(row),
            )
            for row in judged_results(self.report)
        ]
        title = f"Quantized for {self.report['backend']}"
        return notebook_html(title, facts, ("", "output", "SQNR", "decisions"), rows)

    def _worst(self) -> tuple[str, float] | None:
        figures = [
            (str(row["name"]), float(row[key]))
            for row in judged_results(self.report)
            for key in ("sqnr_db", "chip_db")
            if key in row
        ]
        return min(figures, key=lambda figure: figure[1], default=None)


def _agreed(row: JsonMapping) -> str:
    if "agreement" in row:
        return f"{row['agreement']:.2%} equal"
    return decision_line(row) or ""

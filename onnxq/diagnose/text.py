"""A diagnosis in words: one place that turns its values into sentences and lines to copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from shlex import quote

from onnxq.config.toml_text import toml_key, toml_line
from onnxq.diagnose.causes import (
    BiasOverflow,
    Cause,
    ChannelsDiffer,
    DeadChannels,
    FewBits,
    Finding,
    MaskQuantized,
    NormalizationInFewBits,
    OutlierSample,
    OutlierValues,
    SaturatingKernel,
    SoftmaxInFewBits,
    TiedRanges,
    TooFewSamples,
    WrongPreprocessing,
)
from onnxq.diagnose.diagnosis import Diagnosis
from onnxq.diagnose.remedy import DataChange, Remedy, Trial, target_with

SHOWN = 3
"""Members of a list that a sentence names."""

MOST = 1 / 3
"""The part of the noise from which one quantizer is named alone."""


def _listed(parts: list[str]) -> str:
    rest = len(parts) - SHOWN
    return ", ".join(parts[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


@singledispatch
def finding_text(finding: Finding) -> str:
    """What was found at a quantizer."""
    raise TypeError(f"no words for a {type(finding).__name__}")


@finding_text.register
def _(finding: OutlierSample) -> str:
    return (
        f"sample {finding.sample} alone sets the range of '{finding.quantizer}': {finding.magnitude:.4g}, while no "
        f"other sample goes beyond {finding.of_others:.4g}"
    )


@finding_text.register
def _(finding: OutlierValues) -> str:
    return (
        f"a few values set the range of '{finding.quantizer}': {finding.magnitude:.4g}, while all but "
        f"{100 * finding.fraction:g} % of them are within {finding.usual:.4g}"
    )


@finding_text.register
def _(finding: MaskQuantized) -> str:
    return (
        f"the range of '{finding.quantizer}' holds mask values ({finding.value:.4g}) where all others are within "
        f"{finding.usual:.4g}: '{finding.node}' is quantized"
    )


@finding_text.register
def _(finding: TiedRanges) -> str:
    lost = [f"'{m.tensor}' ({m.low:.4g} .. {m.high:.4g})" for m in finding.members if m.lost]
    kept = [f"'{m.tensor}' ({m.low:.4g} .. {m.high:.4g})" for m in finding.members if not m.lost]
    by = "" if finding.node is None else f" by '{finding.node}'"
    return (
        f"one scale{by} for tensors of unlike ranges: {_listed(lost)} beside {_listed(kept)} in steps of "
        f"{finding.step:.3g}"
    )


@finding_text.register
def _(finding: DeadChannels) -> str:
    count = len(finding.channels)
    which = f"channel {finding.channels[0]}" if count == 1 else f"{count} channels"
    return (
        f"{which} of {finding.of} of '{finding.quantizer}' vanish: up to {finding.magnitude:.3g}, less than a step of "
        f"{finding.step:.3g} that the largest channel ({finding.largest:.3g}) makes"
    )


@finding_text.register
def _(finding: ChannelsDiffer) -> str:
    return (
        f"one scale for channels that differ: channel {finding.channel} of {finding.of} of '{finding.quantizer}' goes "
        f"up to {finding.largest:.4g}, half of the channels stay below {finding.median:.4g}"
    )


@finding_text.register
def _(finding: BiasOverflow) -> str:
    if finding.enlarged > 1:
        return (
            f"bias '{finding.bias}' (up to {finding.largest:.4g}) does not fit into its integers, so the scale of "
            f"'{finding.quantizer}' was made {finding.enlarged:.3g} times as large"
        )
    return f"bias '{finding.bias}' (up to {finding.largest:.4g}) has steps of {finding.step:.3g}"


@finding_text.register
def _(finding: SoftmaxInFewBits) -> str:
    return (
        f"probabilities of {finding.op} '{finding.node}' in {finding.bits} bits: half of them are below "
        f"{finding.median:.3g}, a step is {finding.step:.3g}"
    )


@finding_text.register
def _(finding: NormalizationInFewBits) -> str:
    return f"{finding.op} '{finding.node}' in {finding.bits} bits ('{finding.quantizer}')"


@finding_text.register
def _(finding: TooFewSamples) -> str:
    return (
        f"{finding.samples} samples do not show the range of '{finding.quantizer}': {finding.magnitude:.4g}, others go "
        f"up to {finding.beyond:.4g}"
    )


@finding_text.register
def _(finding: SaturatingKernel) -> str:
    return (
        f"this processor's integer kernels saturate: output '{finding.quantizer}' has {finding.kernel_db:.1f} dB "
        f"against the file, whose own loss is {finding.in_file_db:.1f} dB"
    )


@finding_text.register
def _(finding: WrongPreprocessing) -> str:
    return (
        f"input '{finding.quantizer}' is not what the network was trained on: its batch norms are "
        f"{finding.distance:.2g} nats away with {finding.given}, {finding.of_wanted:.2g} with {finding.wanted}"
    )


@finding_text.register
def _(finding: FewBits) -> str:
    return f"'{finding.quantizer}' needs more than {finding.bits} bits"


def cause_text(cause: Cause) -> str:
    """A cause in a sentence: its first finding, and how many more of the kind there are."""
    more = len(cause.findings) - 1
    rest = f" (and {more} more alike)" if more else ""
    return f"{finding_text(cause.findings[0])}{rest}"


def remedy_line(remedy: Remedy, target: str | None) -> str:
    """A remedy in one line."""
    return "; ".join(remedy_lines(remedy, target))


def remedy_lines(remedy: Remedy, target: str | None) -> list[str]:
    """A remedy as it is written: options of the command, or lines of a configuration, or what to do with the data."""
    if remedy.data is not None:
        return [_data_line(remedy.data)]
    named = target_with(target, remedy.options) if target is not None and remedy.options else None
    if all(item.path == ("observer",) for item in remedy.settings) and not remedy.unforce:
        options = [f"-b {quote(named)}"] if named is not None else []
        options += [f"--skip {quote(pattern)}" for pattern in remedy.skip]
        return [" ".join([*options, *(f"--observer {quote(str(item.value))}" for item in remedy.settings)])]
    lines = [toml_line(("backend",), named)] if named is not None else []
    lines += [toml_line(("skip",), remedy.skip)] if remedy.skip else []
    lines += [f"take {toml_line(('force',), remedy.unforce)} out"] if remedy.unforce else []
    for item in remedy.settings:
        lines.append(f"take {toml_key(item.path)} out" if item.value is None else toml_line(item.path, item.value))
    return lines


def _data_line(change: DataChange) -> str:
    if change.action == "leave_out":
        return f"leave sample {', '.join(map(str, change.samples))} out of the data"
    if change.action == "more":
        return f"calibrate on more samples, {change.count} or so"
    return f"prepare the data otherwise: {change.formula}"


def outcome_text(trial: Trial) -> str:
    """What a remedy comes to."""
    if trial.untried:
        return "not tried: it takes samples that were not given"
    if trial.after_db is None:
        return f"refused, {trial.refused}"
    return f"{trial.before_db:.1f} -> {trial.after_db:.1f} dB"


def summary_lines(diagnosis: Diagnosis, most: int = 2) -> list[str]:
    """The first cause and the remedies that pay most, for a report's warnings and the message of a failed run."""
    lines = [f"cause: {cause_text(cause)}" for cause in diagnosis.causes[:1]]
    if not lines:
        lines.append(f"cause: {_without_a_cause(diagnosis)}")
    best = _shown(diagnosis.paying, most)
    lines += [f"remedy: {_shortened(trial, diagnosis.target)}" for trial in best]
    both = diagnosis.combined
    if both is not None and all(both.remedy != trial.remedy for trial in best):
        lines.append(f"remedies together: {_shortened(both, diagnosis.target)}")
    if not best:
        lines.append("remedy: nothing that was tried helps")
    lines += [f"remedy: {_shortened(trial, diagnosis.target)}" for trial in diagnosis.trials if trial.untried]
    return lines


def _without_a_cause(diagnosis: Diagnosis) -> str:
    """The quantizers that cost most, where nothing was found wrong with them."""
    rows = [row for row in diagnosis.costly[:SHOWN] if row.share > 0]
    if rows and rows[0].share >= MOST:
        return f"'{rows[0].name}' ({rows[0].format}) makes {rows[0].share:.0%} of the noise; why was not found"
    first = ", ".join(f"'{row.name}' ({row.share:.0%})" for row in rows)
    return "no single one was found; the noise is spread over many quantizers" + (f", first {first}" if first else "")


def _shown(paying: Sequence[Trial], most: int) -> list[Trial]:
    """The first remedies; a single change that can be typed stands in front of those that take a file."""
    best = list(paying[:most])
    single = [trial for trial in paying if trial.remedy.changes == 1]
    if best and best[0].remedy.changes > SHOWN and single:
        typed = max(single, key=lambda trial: trial.gain_db)
        best = [typed, *(trial for trial in best if trial is not typed)][:most]
    return best


def _shortened(trial: Trial, target: str | None) -> str:
    """A remedy with what it comes to; of many changes the number."""
    changes = trial.remedy.changes
    if changes <= SHOWN:
        return f"{remedy_line(trial.remedy, target)}: {outcome_text(trial)}"
    first = remedy_lines(trial.remedy, target)[-1]
    return f"{changes} settings, such as {first} ('onnxq diagnose --apply FILE' writes them): {outcome_text(trial)}"


def noise_rows(diagnosis: Diagnosis, most: int) -> Iterable[list[str]]:
    """The costliest quantizers with their place in the graph."""
    for row in diagnosis.costly[:most]:
        tied = f" (+{len(row.tensors) - 1} tied)" if len(row.tensors) > 1 else ""
        yield [
            f"{row.name}{tied}",
            row.role,
            row.format,
            "input" if row.position < 0 else str(row.position),
            f"{row.sqnr_db:.2f} dB",
            f"{row.share:.1%}",
        ]

"""What a campaign has found: a table for people, a document for programs."""

from __future__ import annotations

from typing import Any

from tools.fuzz.campaign import Tally
from tools.fuzz.kinds import Kind
from tools.fuzz.outcomes import ABOUT, Outcome


def table(tally: Tally) -> str:
    """Counts by kind and outcome, then the findings, as Markdown."""
    shown = [outcome for outcome in Outcome if outcome.good or any(o is outcome for _, o in tally.outcomes)]
    lines = [
        f"{tally.inputs} inputs of seed {tally.seed} in {tally.seconds:.0f} s, "
        f"{tally.inputs / max(tally.seconds, 1e-9):.1f} per second, {tally.cpu_seconds:.0f} s of processor time; "
        f"{len(tally.targets)} targets, {len(tally.commands)} commands",
        "",
        "| kind | inputs | " + " | ".join(outcome.value for outcome in shown) + " |",
        "|---|" + "---|" * (len(shown) + 1),
    ]
    for kind in Kind:
        counts = [tally.outcomes[kind, outcome] for outcome in shown]
        if sum(counts):
            lines.append(f"| {kind.label} | {sum(counts)} | " + " | ".join(map(str, counts)) + " |")
    totals = [sum(tally.outcomes[kind, outcome] for kind in Kind) for outcome in shown]
    lines.append(f"| all | {sum(totals)} | " + " | ".join(map(str, totals)) + " |")
    findings = tally.findings()
    lines += ["", f"{len(findings)} distinct findings"]
    if findings:
        lines += [
            "",
            "| outcome | where | what | how many | commands | cases | message |",
            "|---|---|---|---|---|---|---|",
        ]
    for finding in findings:
        cause = finding.cause
        commands = sorted({case.command for case in finding.cases})
        numbers = [str(case.number) for case in finding.cases[:4]]
        cells = (
            cause.outcome.value,
            cause.where,
            cause.what,
            len(finding.cases),
            ", ".join(commands[:4]),
            " ".join(numbers),
        )
        lines.append("| " + " | ".join(_cell(str(cell)) for cell in (*cells, finding.message[-200:])) + " |")
    found = sorted({finding.cause.outcome for finding in findings}, key=lambda outcome: outcome.value)
    lines += ["", *(f"{outcome.value}: {ABOUT[outcome]}" for outcome in found)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """On one line, without characters that break the table or the terminal."""
    return "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|").strip()


def document(tally: Tally) -> dict[str, Any]:
    return {
        "seed": tally.seed,
        "inputs": tally.inputs,
        "seconds": round(tally.seconds, 1),
        "cpu_seconds": round(tally.cpu_seconds, 1),
        "targets": sorted(tally.targets),
        "commands": dict(sorted(tally.commands.items())),
        "outcomes": {
            kind.label: {
                outcome.value: tally.outcomes[kind, outcome] for outcome in Outcome if tally.outcomes[kind, outcome]
            }
            for kind in Kind
        },
        "findings": [
            {
                "outcome": finding.cause.outcome.value,
                "where": finding.cause.where,
                "what": finding.cause.what,
                "message": finding.message,
                "count": len(finding.cases),
                "cases": [case.number for case in finding.cases],
                "example": finding.cases[0].shown(),
            }
            for finding in tally.findings()
        ],
    }

"""tools/check_texts.py: no module of onnxq decides by a sentence, and one that does is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.check_texts import ALLOWED, check_tree

REPOSITORY = Path(__file__).resolve().parents[2]


def planted(tmp_path: Path, code: str) -> list[str]:
    (tmp_path / "onnxq").mkdir()
    (tmp_path / "onnxq" / "words.py").write_text('REFUSED = "the target refuses it"\n')
    (tmp_path / "onnxq" / "planted.py").write_text(code)
    return check_tree(tmp_path)


def test_no_module_decides_by_a_sentence() -> None:
    assert check_tree(REPOSITORY) == []


def test_what_is_allowed_exists_and_reads_sentences(tmp_path: Path) -> None:
    for file in ALLOWED:
        (tmp_path / "onnxq" / "other").mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / "onnxq" / "other" / Path(file).name)
    assert {finding.partition(":")[0].rpartition("/")[2] for finding in check_tree(tmp_path)} == {
        Path(file).name for file in ALLOWED
    }


@pytest.mark.parametrize(
    "code",
    [
        'found = why.startswith("its input is float")\n',
        'found = why.startswith(("float", "no effect: "))\n',
        'found = row.became.split("dtype = ")\n',
        'found = f"no rule for {op}" in why\n',
        "found = name in str(error)\n",
        'found = why == "it is empty"\n',
        'found = why in ("it is empty", "none")\n',
        'WORDS = "it is empty"\nfound = [why for why in lines if why != WORDS]\n',
        "from onnxq.words import REFUSED as WORDS\nfound = why.replace(WORDS, '')\n",
        'found = re.search(r"has no rule for (\\w+)", why)\n',
        'match why:\n    case "it is empty":\n        found = 1\n',
    ],
)
def test_a_decision_by_a_sentence_is_found_however_it_is_written(tmp_path: Path, code: str) -> None:
    (finding,) = planted(tmp_path, code)
    assert finding.startswith("onnxq/planted.py:")
    assert "decides by the text" in finding


@pytest.mark.parametrize(
    "code",
    [
        'found = name.startswith("op:") or kind == "no_effect" or text.split(", ")\n',
        'raise ValueError(f"the model has no {name}")\n',
        'found = {"checked by": 1}\n',
        "from onnxq.words import REFUSED\nfound = f'{REFUSED}: {why}'\n",
        "found = why.code in ('no_rule', 'excluded')\n",
    ],
)
def test_values_and_texts_for_people_pass(tmp_path: Path, code: str) -> None:
    assert planted(tmp_path, code) == []

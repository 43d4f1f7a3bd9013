"""`python -m tools.zoo`: run the gate and write its tables."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tools.zoo import page, results
from tools.zoo.catalogue import MODELS
from tools.zoo.cells import DEFAULT_EFFORT, ROOT, targets
from tools.zoo.gate import Gate
from tools.zoo.model import by_name
from tools.zoo.packages import CACHE_VARIABLE, Cache, Unavailable, default_cache
from tools.zoo.verdicts import Cell

DEFAULT_EFFORT_TARGETS = ("onnxruntime", "tensorrt", "openvino", "qnn", "vitis", "sophgo_bm1684x")
DEFAULT_EFFORT_MODELS = (
    "digits",
    "mobilenetv2",
    "orientation",
    "nudenet",
    "ddddocr-det",
    "yunet",
    "centerface-unnamed",
    "mtcnn-onet",
    "ppocrv4-det",
    "ppocrv4-rec",
    "ppocrv2-rec",
    "minilm-l3",
    "minilm-l6",
    "vit-fashion",
    "silero-vad-openvino",
    "nsnet2",
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    cache = Cache(options.cache or default_cache())
    path = options.results or cache.root / "results.jsonl"
    code = options.code or results.code_hash(ROOT)
    try:
        models = by_name(MODELS, options.models)
    except Unavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.list:
        for model in models:
            print(f"{model.name:22} {model.kind.value:16} {model.origin}")
        return 0
    if not options.tables:
        gate = Gate(cache, path, code, _tell, options.again)
        try:
            with _interruptible():
                for effort in options.efforts:
                    default = effort >= DEFAULT_EFFORT
                    chosen = targets(options.targets or (DEFAULT_EFFORT_TARGETS if default else ()))
                    few = by_name(MODELS, DEFAULT_EFFORT_MODELS) if default and not options.models else models
                    gate.run(few, [(target, effort) for target in chosen], options.jobs)
        except KeyboardInterrupt:
            print(f"interrupted: what is done is in {path}, the same command goes on from there", file=sys.stderr)
            return 130
    cells = results.read(path)
    earlier = results.read(options.previous) if options.previous else cells
    previous = results.by_slot(earlier, other_than=None if options.previous else code)
    shown = page.tables(results.by_slot(cells, code), previous, options.efforts)
    if options.page:
        page.write(options.page, page.MODEL_LIST, page.model_list())
        page.write(options.page, page.TABLES, shown)
    else:
        print(shown)
    return int(any(cell.verdict.failed for cell in results.by_slot(cells, code).values()))


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM as Ctrl-C, and Ctrl-C also where a shell has made it ignored in the background."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(cell: Cell) -> None:
    figures = [
        f"{cell.worst_db:.1f} dB ({cell.worst})" if cell.worst_db is not None else "",
        f"{cell.agreement:.0%}" if cell.agreement is not None else "",
        cell.reason.split("\n")[0][:120],
    ]
    shown = ", ".join(figure for figure in figures if figure)
    where = f"{cell.model} {cell.key.target} effort {cell.key.effort}"
    print(f"{where}: {cell.verdict.value}: {shown} [{cell.seconds:.0f} s]", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.zoo", description=__doc__)
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME", help="these models; all by default")
    parser.add_argument("--targets", nargs="*", default=[], metavar="NAME", help="these targets; all by default")
    parser.add_argument("--efforts", nargs="*", type=int, default=[0], metavar="N", help="efforts; 0 by default")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models side by side")
    parser.add_argument("--again", action="store_true", help="also what there are results of")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help=f"models and results; else ${CACHE_VARIABLE}")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="lines of JSON; results.jsonl in the cache by default"
    )
    parser.add_argument("--code", metavar="TEXT", help="name of this version; a hash of onnxq's files by default")
    parser.add_argument(
        "--previous", type=Path, metavar="FILE", help="results to compare with; else earlier ones of --results"
    )
    parser.add_argument("--tables", action="store_true", help="run nothing, show what is there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables between the marks of this page")
    parser.add_argument("--list", action="store_true", help="show the models and where they come from")
    return parser


if __name__ == "__main__":
    sys.exit(main())

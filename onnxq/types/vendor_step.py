"""What to do with written files in a vendor's own tools: which file goes to which program, as lines to copy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MODEL, NAME, SHAPES = "model", "name", "shapes"
"""Words for the file of the model itself, its plain name, and the shapes of its inputs as [[1,3,224,224]]."""

_WORD = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True)
class VendorStep:
    """A line for a program of a vendor, or a few lines of Python for its library.

    what  which program, and for what
    line  the command or program, in the folder of the files; `{emitter}` stands for the (first) file that an emitter of
          the target writes, `{model}`, `{name}` and `{shapes}` for what the words above say
    """

    what: str
    line: str

    @property
    def words(self) -> frozenset[str]:
        """What the line has places for."""
        return frozenset(_WORD.findall(self.line))

    def filled(self, words: Mapping[str, str]) -> str:
        return _WORD.sub(lambda found: words[found[1]], self.line)

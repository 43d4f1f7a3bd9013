"""An extension of griffe, which reads docstrings for the site: aligned tables become definition lists."""

from __future__ import annotations

from typing import Any

import griffe

from tools.site.definition_lists import with_definition_lists


class AlignedTables(griffe.Extension):
    """Rewrites the docstring of every object that is read."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_definition_lists(obj.docstring.value)

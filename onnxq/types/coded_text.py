"""CodedText: a text for people that has a code for programs; printed, compared and written to JSON like any text."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

Code = TypeVar("Code", bound=str)


class CodedText(str, Generic[Code]):
    """The base of `Reason` and `Note`, which say what codes there are."""

    code: Code

    def __new__(cls, code: Code, text: str) -> Self:
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.code, str(self)

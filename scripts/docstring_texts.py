"""Extension of griffe for `make docs`: what follows a name in a docstring is a text, not a type.

Parameters are written `bins : number of bins`. Read as numpydoc, the text would be the type, and be set as code. griffe
is in the environment of the documentation only.
"""

from __future__ import annotations

from typing import Any

import griffe  # type: ignore[import-not-found]

LISTS = (griffe.DocstringSectionParameters, griffe.DocstringSectionAttributes)


class DocstringTexts(griffe.Extension):  # type: ignore[misc]
    """Moves texts from the place of the type to the description."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the parsed sections of one object."""
        if obj.docstring is None:
            return
        for section in obj.docstring.parsed:
            if isinstance(section, LISTS):
                for item in section.value:
                    _describe(item, [item.annotation, item.description])
            elif isinstance(section, griffe.DocstringSectionReturns):
                _join(section)


def _join(section: Any) -> None:
    """Make the lines of what a function returns one text, unless it is a type alone."""
    first, texts = section.value[0], []
    for item in section.value:
        name = f"{item.name}:" if item.name else None
        texts += [name, item.annotation, item.description]
    if len(section.value) == 1 and " " not in str(first.annotation or ""):
        return
    _describe(first, texts)
    first.name = ""
    section.value = [first]


def _describe(item: Any, texts: list[Any]) -> None:
    item.description = " ".join(str(each) for each in texts if each)
    item.annotation = None

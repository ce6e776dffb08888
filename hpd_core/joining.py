"""Steps apart, then one that sees them all: a trunk that holds another trunk, its branches and their values.

    trunk ─┬─ "price":  20             joined    trunk
           ├─ "weight": 1.2                      "price":  20
           └─ "colour": "red"                    "weight": 1.2
                                                 "colour": "red" ─── "summary": ...

What grows from the joined trunk is what ordinary decoding behind that text would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpd_core.completion import OpenBranch, Trunk, TrunkCompletions
from hpd_core.errors import PromptError
from hpd_core.text.template import Piece


def joined(trunk: Trunk, branches: Sequence[OpenBranch], found: TrunkCompletions) -> Trunk:
    """A trunk for a second `Engine.complete`: the first one, and behind it every branch with what was written there.

    Each branch has a line, in order; a value that was cut is shown as far as it was written. No control tokens come
    from branches or values. Equal prefixes are computed once: a document that stands in `trunk.prefix` is not computed
    again for the second call, one that is `trunk.text` is.

    Args:
        branches: those that grew from the trunk, all of them.
        found: what they were completed with.

    Raises:
        PromptError: the trunk was refused, or one of its values could not be decoded.
        ValueError: not as many completions as branches.
    """
    if found.error is not None:
        raise PromptError(f"nothing grew from this trunk that could be joined: {found.error}")
    lines = []
    for branch, completion in zip(branches, found.branches, strict=True):
        if completion.status == "error":
            raise PromptError(f"{branch.text[:80]!r} was not decoded, and cannot be joined: leave it out")
        lines.append(f"{branch.text}{completion.raw}\n")
    return replace(trunk, decoded=(*trunk.decoded, Piece("".join(lines), False)))

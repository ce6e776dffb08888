"""Join of separate branches for a step that sees them all: a trunk that holds a trunk, its branches and values.

    trunk ─┬─ "price":  20             joined    trunk
           ├─ "weight": 1.2                      "price":  20
           └─ "colour": "red"                    "weight": 1.2
                                                 "colour": "red" ─── "summary": ...

Values that grow from the joined trunk equal those of ordinary decoding after that text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpd_core.completion import OpenBranch, Trunk, TrunkCompletions
from hpd_core.errors import PromptError
from hpd_core.text.template import Piece


def joined(trunk: Trunk, branches: Sequence[OpenBranch], found: TrunkCompletions) -> Trunk:
    """Return a trunk for a second `Engine.complete`: the first one, followed by every branch with its value.

    Each branch has a line, in order; a value that was cut is shown up to the cut. Branches and values cannot bring in
    control tokens. Equal prefixes are computed once: a document in `trunk.prefix` is not computed again for the second
    call, one in `trunk.text` is.

    Args:
        branches: all branches that grew from the trunk.
        found: their completions.

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

"""How a value ends.

It ends with the first token whose text holds a newline (paper, 4.3.4). What is read is the first JSON value of that
line (values.py), so that behind `null` nothing changes the answer any more: where its first token says all of it, and
no other value sees what follows, the value ends there and the model is not asked for the comma. (A tokenizer that
writes the space before it as a token of its own gains nothing.)
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

GOES_ON = 0
ENDS = 1
"""What a token does that ends every value it is written into: its text holds a newline, or ends the text."""
ENDS_AS_FIRST = 2
"""What a token does that ends a value which nobody else sees, if it is the value's first."""

NULL = "null"
"""The JSON value behind which nothing makes another answer. (So it is with `true`; but there may stand the rest of a
text that the model forgot to quote, and that is worth knowing: `Value.num_dropped`.)"""

Endings: TypeAlias = npt.NDArray[np.uint8]
"""uint8 [vocabulary], what each token does: GOES_ON, ENDS or ENDS_AS_FIRST."""


def at_line_ends(endings: Endings) -> Endings:
    """The same for somebody who writes every value's line to its end."""
    return np.where(endings == ENDS, ENDS, GOES_ON).astype(np.uint8)

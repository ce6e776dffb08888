"""How a value ends.

It ends with the first token whose text holds a newline (paper, 4.3.4). What is read is the first JSON value of that
line (values.py), so that behind `null`, `true` or `false` nothing changes the answer any more: where one token says
all of it, and no other value sees what follows, the value ends there and the model is not asked for the comma.
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

COMPLETE_WORDS = frozenset({"null", "true", "false"})
"""JSON values that nothing behind them can turn into another one."""

Endings: TypeAlias = npt.NDArray[np.uint8]
"""uint8 [vocabulary], what each token does: GOES_ON, ENDS or ENDS_AS_FIRST."""

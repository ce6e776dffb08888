"""What a plan says of memory, as far as the engine that was measured has said it."""

from __future__ import annotations

import io

from rich.console import Console

from pipelines.costing.forecast_text import print_forecast
from tests.pipelines.costing.forecasts import forecast
from tests.tables import table

WEIGHTS = {"weight_bytes": 31_400_000_000}
NO_MIXERS = {"state_bytes": 0, "column_bytes": 0}


@table(
    ("size", "said"),
    [
        (WEIGHTS, "memory       weights 31.4 GB\n"),  # an earlier version's run
        (WEIGHTS | NO_MIXERS | {"cached_bytes": 31_104}, "weights 31.4 GB; 31.1 kB a token in the KV cache\n"),
        (
            WEIGHTS | {"state_bytes": 2_000_000, "column_bytes": 12_000, "cached_bytes": 4_000},
            "4.0 kB a token in the KV cache; what layers beside attention keep: 2.0 MB a product under way, 12.0 kB a "
            "token of its values\n",
        ),
    ],
)
def test_memory_is_told(size: dict[str, int], said: str) -> None:
    shown = io.StringIO()
    print_forecast(Console(file=shown, width=200), forecast(model_size=size), [1.0], "place")
    assert said in shown.getvalue()

"""Price of an engine's hour: the price of its instance times its share of it.

The instance comes from the configuration, or from EC2 if the engine runs there. Its price comes from the configuration,
or from the table that ships. Unknown values are left empty, never guessed.
"""

from __future__ import annotations

import difflib
import functools
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb

from pipelines.config.operation import CostConfig

Market = Literal["on-demand", "spot"]
TABLE_SOURCE = "SkyPilot catalog, commit 00148f2 (2026-11 or before)"
_TABLE = Path(__file__).with_name("prices.csv")
_COLUMNS = "instance_type, gpu, gpu_count, on_demand_usd_per_hour, spot_usd_per_hour, region"
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_METADATA = "http://169.254.169.254"
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class InstancePrice:
    """Row of the price table; prices in USD an hour, None if not known."""

    instance_type: str
    gpu: str
    gpu_count: int
    on_demand: float | None
    spot: float | None
    region: str

    def of(self, market: str | None) -> float | None:
        """Return the price in a market: "spot", else on demand."""
        return self.spot if market == "spot" else self.on_demand


@dataclass(frozen=True, slots=True)
class Instance:
    """Machine that an engine runs on; None for what is not known."""

    instance_type: str | None = None
    market: Market | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class EnginePrice:
    """Price of an engine.

    Attributes:
        usd_per_hour: price of its share of the instance; None if it is not known.
        source: origin of the price; None if there is none.
    """

    instance: Instance
    usd_per_hour: float | None = None
    source: str | None = None


@functools.cache
def price_table() -> dict[str, InstancePrice]:
    """Return the price table that ships, by instance type."""
    found = duckdb.read_csv(str(_TABLE), comment="#", header=True).project(_COLUMNS)
    return {row[0]: InstancePrice(*row) for row in found.fetchall()}


def engine_price(config: CostConfig, share: float, find: Callable[[], Instance] | None = None) -> EnginePrice:
    """Return the price of an engine here and now.

    Args:
        share: share of its instance that the engine holds, above 0 and at most 1.
        find: function that asks the cloud; by default `find_instance`.
    """
    found = Instance() if config.instance_type and config.market else (find or find_instance)()
    instance = Instance(config.instance_type or found.instance_type, config.market or found.market, found.region)
    if config.usd_per_hour is not None:
        return EnginePrice(instance, config.usd_per_hour * share, "configuration")
    known = price_table().get(instance.instance_type or "")
    if known is None or instance.market is None or (instance.region or known.region) != known.region:
        # Another region has other prices.
        return EnginePrice(instance)
    price = known.of(instance.market)
    return (
        EnginePrice(instance)
        if price is None
        else EnginePrice(instance, price * share, f"{TABLE_SOURCE}, {known.region}")
    )


def why_no_price(instance_type: str | None, market: str | None) -> str:
    """Return why no price was found in the table, and what to set."""
    known = price_table().get(instance_type or "")
    if instance_type is None:
        return "set cost.usd_per_hour, or cost.instance_type and cost.market, for dollars"
    if known is None:
        near = difflib.get_close_matches(instance_type, price_table(), n=1)
        hint = f" (there is {near[0]})" if near else ""
        return f"the price table has no {instance_type!r}{hint}: set cost.usd_per_hour to what one costs, for dollars"
    if market is None:
        return f"it is not known what {instance_type} is bought as: set cost.market to on-demand or spot, for dollars"
    if known.of(market) is None:
        return f"the price table has no {market} price of {instance_type}: set cost.usd_per_hour to it, for dollars"
    return f"the price table has {instance_type} in {known.region} alone: set cost.usd_per_hour and cost.market"


def price_notes(config: CostConfig) -> list[str]:
    """Return a note if the configuration names an instance without a known price; empty if not."""
    known = price_table().get(config.instance_type or "")
    is_named = config.instance_type is not None and config.usd_per_hour is None
    if not is_named or (known is not None and (config.market is None or known.of(config.market) is not None)):
        return []
    return [f"cost.instance_type: {why_no_price(config.instance_type, config.market)}"]


def find_instance(vendor: Path = _VENDOR, metadata: str = _METADATA) -> Instance:
    """Return what EC2's metadata say of this machine; an empty `Instance` elsewhere, without a request."""
    try:
        if "Amazon EC2" not in vendor.read_text():
            return Instance()
        request = urllib.request.Request(
            f"{metadata}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        )
        token = _ask(request)

        def get(name: str) -> str:
            url = f"{metadata}/latest/meta-data/{name}"
            return _ask(urllib.request.Request(url, headers={"X-aws-ec2-metadata-token": token}))

        life_cycle = get("instance-life-cycle")
        market: Market = "spot" if life_cycle == "spot" else "on-demand"
        return Instance(get("instance-type"), market, get("placement/region"))
    except (OSError, urllib.error.URLError):
        # A container may be kept from asking: then the configuration has to say it.
        return Instance()


def _ask(request: urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def usd_per_1k(usd_per_hour: float, products_per_second: float) -> float:
    """Return dollars per thousand products."""
    return usd_per_hour / 3600 / products_per_second * 1000

"""What an engine's hour costs: the price of its instance, by its share of it.

The instance is named by the configuration, or by EC2 itself where the engine runs there; its price by the
configuration, or by the table that ships. What is not known is left empty, never guessed.
"""

from __future__ import annotations

import csv
import difflib
import functools
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.config.operation import CostConfig

Market = Literal["on-demand", "spot"]
TABLE_SOURCE = "SkyPilot catalog, commit 00148f2 (2026-11 or before)"
_TABLE = Path(__file__).with_name("prices.csv")
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_METADATA = "http://169.254.169.254"
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class InstancePrice:
    """A row of the table; prices in USD an hour, None where not known."""

    instance_type: str
    gpu: str
    gpu_count: int
    on_demand: float | None
    spot: float | None
    region: str

    def of(self, market: str | None) -> float | None:
        """The price by how it is bought."""
        return self.spot if market == "spot" else self.on_demand


@dataclass(frozen=True, slots=True)
class Instance:
    """The machine an engine runs on, as far as it is known."""

    instance_type: str | None = None
    market: Market | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class EnginePrice:
    """What an engine costs.

    Attributes:
        usd_per_hour: of its share of the instance; None if it is not known.
        source: where the price is from; None if there is none.
    """

    instance: Instance
    usd_per_hour: float | None = None
    source: str | None = None


@functools.cache
def price_table() -> dict[str, InstancePrice]:
    """The table that ships, by instance type."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["instance_type"]: _price(row) for row in rows}


def _price(row: dict[str, str]) -> InstancePrice:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return InstancePrice(
        row["instance_type"],
        row["gpu"],
        int(row["gpu_count"]),
        number("on_demand_usd_per_hour"),
        number("spot_usd_per_hour"),
        row["region"],
    )


def engine_price(config: CostConfig, share: float, find: Callable[[], Instance] | None = None) -> EnginePrice:
    """The price of an engine here and now.

    Args:
        share: how much of its instance the engine holds, above 0 and at most 1.
        find: asks the cloud; by default `find_instance`.
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
    """What the table lacks, where no price was found, and the way out."""
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
    """What a user should know before any work of a machine that is named and has no price."""
    known = price_table().get(config.instance_type or "")
    is_named = config.instance_type is not None and config.usd_per_hour is None
    if not is_named or (known is not None and (config.market is None or known.of(config.market) is not None)):
        return []
    return [f"cost.instance_type: {why_no_price(config.instance_type, config.market)}"]


def find_instance(vendor: Path = _VENDOR, metadata: str = _METADATA) -> Instance:
    """What EC2 says of this machine; nothing on other machines, which are not asked."""
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
    """Dollars for a thousand products."""
    return usd_per_hour / 3600 / products_per_second * 1000

"""How many examples a property-based test draws: by hypothesis' profile, which the command that runs the tests names.

make test       quick    a quarter of them, the same ones every time
make test-all   all      all of them, the same ones every time
make soak       search   all of them, drawn anew every time
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_PLENTY = 100
"""What hypothesis draws where a test says nothing."""

_QUICK_SHARE = 0.25
_QUICK_LEAST = 3


def examples(count: int) -> int:
    """For `settings(max_examples=...)`: of `count` examples, those that the present profile has time for."""
    if settings.get_current_profile_name() != "quick":
        return count
    return min(count, max(_QUICK_LEAST, int(count * _QUICK_SHARE)))


def register_profiles() -> None:
    """Makes the three profiles known; `all` is the one where none is named.

    A slow machine is no failure. And a change is not to be refused for what chance draws while it is tested: only
    `search` draws anew.
    """
    settings.register_profile(
        "search", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow], max_examples=_PLENTY
    )
    settings.register_profile("all", settings.get_profile("search"), derandomize=True)
    settings.register_profile("quick", settings.get_profile("all"), max_examples=int(_PLENTY * _QUICK_SHARE))
    settings.load_profile("all")

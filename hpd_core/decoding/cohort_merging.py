"""Merging of cohorts that have become small: a long tail does not cost a call for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpd_core.decoding.cohort import Cohort


def merged(cohorts: Sequence[Cohort], most_prompts: int, has_room: Callable[[Sequence[Cohort]], bool]) -> list[Cohort]:
    """Merge decoding cohorts that together fit one; return them with the others.

    Args:
        most_prompts: the most prompts of a cohort.
        has_room: whether there is memory to merge these.
    """
    left = [cohort for cohort in cohorts if cohort.num_prefill_tokens]
    small = sorted(
        (cohort for cohort in cohorts if not cohort.num_prefill_tokens), key=lambda cohort: cohort.num_columns
    )
    group: list[Cohort] = []
    for cohort in small:
        size = sum(_num_rows(each, most_prompts) for each in (*group, cohort))
        # Columns may be padded to the longest, so very different lengths stay apart.
        is_alike = not group or cohort.num_columns <= 2 * group[0].num_columns
        if group and (size > most_prompts or not is_alike or not has_room([*group, cohort])):
            left.append(_one(group))
            group = []
        group.append(cohort)
    return [*left, _one(group)] if group else left


def _num_rows(cohort: Cohort, most_prompts: int) -> int:
    """Return the rows it adds to a merged cohort. A large one counts all: it would be copied for each small one."""
    is_small = 2 * cohort.num_unfinished <= most_prompts
    return cohort.num_unfinished if is_small else len(cohort.prompts)


def _one(cohorts: list[Cohort]) -> Cohort:
    return Cohort.merge(cohorts) if len(cohorts) > 1 else cohorts[0]

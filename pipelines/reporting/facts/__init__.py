"""All that a report says, as data: computed once, shown three times (page, JSON, Markdown).

None: not known, or not asked for; it is never a zero in disguise.
"""

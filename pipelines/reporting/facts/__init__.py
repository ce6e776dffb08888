"""All facts of a report, as data: computed once, rendered three times (page, JSON, Markdown).

None means unknown or not requested. It never stands for zero.
"""

"""The report of a run: facts gathered once, then written as a page, as JSON and as Markdown."""

"""What a run costs and found: forecasts before it starts; afterwards its report, as a page, as JSON and as Markdown."""

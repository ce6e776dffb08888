"""The configuration files of jobs, checked before anything starts."""

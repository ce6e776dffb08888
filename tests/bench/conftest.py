"""The measurements run the same job as the tests of the pipelines, in the same workplaces."""

from tests.pipelines.conftest import workplace

__all__ = ["workplace"]

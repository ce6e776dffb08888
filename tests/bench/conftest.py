"""The measurements run the same job as the tests of the pipelines, on the same fixtures."""

from tests.pipelines.conftest import shared_ray, workplace

__all__ = ["shared_ray", "workplace"]

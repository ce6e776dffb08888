"""Errors mean what they say, in codes or in words, whoever sends them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.labelling.endpoint_errors import DECLINED, SERVER_ERROR, error_of
from tests.examples import examples
from tests.tables import table


@table(
    ("error", "status"),
    [
        ({"message": "Rate limit exceeded: the model is busy", "code": 429}, 429),
        ({"message": "slow", "code": "429"}, 429),
        ("rate limited", 429),
        ({"message": "Request was throttled", "type": "rate_limit_error"}, 429),
        ({"code": 429, "message": "Provider returned error", "metadata": {"raw": "shared pool is full"}}, 429),
        ({"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"}, 429),
        ({"status_code": 1002, "status_msg": "rate limit"}, 429),
        ({"code": 429, "message": "You exceeded your current quota, check your plan and billing details"}, 429),
        ({"code": "insufficient_quota", "message": "You exceeded your current quota"}, 402),
        ({"message": "Insufficient Balance", "code": "invalid_request_error"}, 402),
        ({"code": 402, "message": "Add more credits"}, 402),
        ({"code": 401, "message": "User not found."}, 401),
        ("Invalid API key", 401),
        ({"detail": "Unauthorized"}, 401),
        ({"errors": [{"code": 10000, "message": "Authentication error"}]}, 401),
        ({"object": "error", "message": "The model `m` does not exist.", "code": 404}, 404),
        ("model 'm' not found, try pulling it first", 404),
        ({"detail": "Not Found"}, 404),
        ({"type": "overloaded_error", "message": "Overloaded"}, 503),
        ("Error code: 503 - no healthy instance", 503),
        ({"code": 502, "message": "Upstream idle timeout exceeded"}, 502),
        ({"code": "server_error", "message": "Provider disconnected"}, 503),
        ({"code": "context_length_exceeded", "message": "18,000 tokens"}, 400),
        ({"code": 400, "message": "maximum context length is 4096 tokens"}, 400),
        ({"code": "content_filter", "message": "The response was filtered"}, DECLINED),
        ({"code": 403, "message": "flagged by moderation"}, DECLINED),
        ({"code": "DataInspectionFailed", "message": "..."}, DECLINED),
        ({"code": "billing_hard_limit_reached", "message": "Billing hard limit has been reached"}, 402),
        ("Billing is not active for this account", 402),
        ({"message": "Incorrect API key provided: 'sk-1'"}, 401),
        ({"message": "Please pass a valid API key."}, 401),
        ({"status": "UNAUTHENTICATED", "message": "..."}, 401),
        # words of a product in an error never end a run
        ("Failed to parse request for 'QuickBooks Billing software': tokenizer failed", SERVER_ERROR),
        ("Failed to parse QuickBooks Billing and Payment software", SERVER_ERROR),
        ('Failed at "Invalid API key, a novel"', SERVER_ERROR),
        ("Failed at `Unauthorized`, “Forbidden” and 'Model not found'", SERVER_ERROR),
        ("Failed to parse request for a fingerprint authenticator", SERVER_ERROR),
        ({"message": "odd", "code": 1302}, SERVER_ERROR),
        ("something odd", SERVER_ERROR),
        ({}, SERVER_ERROR),
        (None, SERVER_ERROR),
    ],
)
def test_an_error_is_the_status_that_it_means(error: Any, status: int) -> None:
    assert error_of(error).status == status


@table(
    ("error", "seconds"),
    [
        ({"message": "busy", "retry_after": 7}, 7),
        ({"message": "busy", "metadata": {"retry_after_ms": 1500}}, 1.5),
        ({"message": "quota", "details": [{"@type": "RetryInfo", "retryDelay": "22s"}]}, 22),
        ("Rate limit reached. Please try again in 6m0s.", 360),
        ("Rate limit reached, retry after 350ms", 0.35),
        ("Please retry in 2.5 seconds", 2.5),
        ("busy, try again later", None),
        ({"retry_after": None}, None),
        ({"retry_after": "1" * 400}, None),
    ],
)
def test_how_long_to_wait(error: Any, seconds: float | None) -> None:
    assert error_of(error).retry_after == (pytest.approx(seconds) if seconds is not None else None)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("\ud83d"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["code", "message", "error", "type", "metadata", "x"]), inner, max_size=3)
    ),
)


@given(ANYTHING)
@settings(max_examples=examples(200))
def test_any_error_is_one(error: Any) -> None:
    told = error_of(error)
    assert 400 <= told.status < 600
    assert told.message
    assert told.retry_after is None or told.retry_after >= 0

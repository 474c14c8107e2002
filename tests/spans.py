"""Spans in tests."""

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext


def context_of(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context

"""The suites that are shipped explain their failures here as well."""

import pytest

pytest.register_assert_rewrite(
    "eventlog.conformance", "recovery.space.conformance", "recovery.redrive.conformance", "recovery.checkpoints.conformance",
    "recovery.conformance",
)  # fmt: skip

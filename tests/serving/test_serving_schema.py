"""schemathesis over the whole OpenAPI document: whatever the schema allows, no answer is our fault or out of schema."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from exactk.serving.settings import Settings
from serving_model import fitted, write_data
from serving_server import served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies, not ours
    schemathesis = pytest.importorskip(
        "schemathesis", reason="the OpenAPI document is tested by schemathesis"
    )
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]

# The service runs in a thread of this process; the shape checker's own dice there are no business of hypothesis.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Do not use the `random` module")]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    scratch = tmp_path_factory.mktemp("schema")
    data = write_data(scratch / "data")
    fitted(data, "pair_value").save(scratch / "model")
    with served(Settings(model=scratch / "model", log=scratch / "log", dataset=data)) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


def test_every_operation_keeps_its_word(api: Any) -> None:
    operations = [result.ok() for result in api.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy())
        def keeps_its_word(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        keeps_its_word()

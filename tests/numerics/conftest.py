"""Each test of a `Suite` runs with the cases of its class to which it applies."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        applies = getattr(metafunc.function, "applies", lambda case: True)
        cases = [case for case in metafunc.cls.cases if applies(case)]
        slow = pytest.mark.slow
        values = [
            pytest.param(case, marks=slow if case.slow else (), id=str(case)) for case in cases
        ]
        metafunc.parametrize("case", values)

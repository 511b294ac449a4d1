"""CloudFormation's intrinsic functions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_cloud.template import NO_VALUE, Resolver, Unsupported


@pytest.fixture
def resolver() -> Resolver:
    return Resolver(
        reference=lambda name: {"A": "a", "AWS::NoValue": NO_VALUE}[name],
        attribute=lambda logical_id, name: f"{logical_id}!{name}",
        imported=lambda name: f"imported {name}",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "A"}, "a"),
        ({"Fn::GetAtt": ["R", "Arn"]}, "R!Arn"),
        ({"Fn::GetAtt": "R.Nested.Arn"}, "R!Nested.Arn"),
        ({"Fn::Join": ["-", ["x", {"Ref": "A"}, 1]]}, "x-a-1"),
        ({"Fn::Select": [1, {"Fn::Split": [":", "p:q:r"]}]}, "q"),
        ({"Fn::Sub": "${A}/${R.Arn}/${!Literal}"}, "a/R!Arn/${Literal}"),
        ({"Fn::Sub": ["${V}-${A}", {"V": {"Ref": "A"}}]}, "a-a"),
        ({"Fn::ImportValue": {"Fn::Join": ["", ["e", {"Ref": "A"}]]}}, "imported ea"),
        ({"Condition": {"StringEquals": {"k": {"Ref": "A"}}}}, {"Condition": {"StringEquals": {"k": "a"}}}),
        ({"k": {"Ref": "AWS::NoValue"}, "l": [{"Ref": "AWS::NoValue"}, 1]}, {"l": [1]}),
    ],
)
def test_functions(resolver: Resolver, value: Any, expected: Any) -> None:
    """Each intrinsic function gives the value that CloudFormation gives."""
    assert resolver.resolve(value) == expected


@pytest.mark.parametrize("name", ["Fn::Cidr", "Fn::If", "Fn::FindInMap"])
def test_an_unknown_function_is_refused(resolver: Resolver, name: str) -> None:
    """The error names an intrinsic function that the simulation lacks."""
    with pytest.raises(Unsupported, match=name):
        resolver.resolve({name: ["x", "y", "z"]})

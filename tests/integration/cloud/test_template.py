"""CloudFormation's intrinsic functions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.template import NO_VALUE, Resolver, Unsupported

TEMPLATE = {
    "Conditions": {"Yes": {"Fn::Equals": ["a", {"Ref": "A"}]}, "No": {"Fn::Not": [{"Condition": "Yes"}]}},
    "Mappings": {"Map": {"one": {"two": "found"}}},
}


@pytest.fixture
def resolver() -> Resolver:
    return Resolver(
        TEMPLATE,
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
        ({"Fn::If": ["Yes", {"Ref": "A"}, "b"]}, "a"),
        ({"Fn::If": ["No", "a", "b"]}, "b"),
        ({"Fn::And": [{"Condition": "Yes"}, {"Condition": "No"}]}, False),
        ({"Fn::Or": [{"Condition": "Yes"}, {"Condition": "No"}]}, True),
        ({"Fn::FindInMap": ["Map", "one", "two"]}, "found"),
        ({"Fn::Base64": "x"}, "eA=="),
        ({"Condition": {"StringEquals": {"k": {"Ref": "A"}}}}, {"Condition": {"StringEquals": {"k": "a"}}}),
        ({"k": {"Ref": "AWS::NoValue"}, "l": [{"Ref": "AWS::NoValue"}, 1]}, {"l": [1]}),
    ],
)
def test_functions(resolver: Resolver, value: Any, expected: Any) -> None:
    """Each gives what CloudFormation gives."""
    assert resolver.resolve(value) == expected


def test_an_unknown_function_is_refused(resolver: Resolver) -> None:
    """By name."""
    with pytest.raises(Unsupported, match="Fn::Cidr"):
        resolver.resolve({"Fn::Cidr": ["10.0.0.0/8", 1]})

"""Runs the same CDK app on this machine: an engine that speaks AWS, the real CDK CLI, the real handlers."""

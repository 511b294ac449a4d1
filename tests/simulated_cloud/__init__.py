"""Deploys a CDK assembly onto moto in the test process and runs it on a virtual clock. README.md describes it."""

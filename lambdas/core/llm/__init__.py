"""Calls of language models: one port (`provider`) with two adapters, rate limits, circuits, prices."""

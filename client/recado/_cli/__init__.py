"""The commands of `recado`: their options, what they do, and what they print."""

"""WebSockets: `subscriptions` to jobs, `messages`, `sockets` that send them, a `channel` for streamed text."""

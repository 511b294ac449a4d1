"""WebSockets: who listens to what (`subscriptions`), how it is said (`messages`) and sent (`sockets`), text as it comes
(`channel`).
"""

"""WebSockets: who listens to what (`audience`), how it is said (`messages`) and sent (`sockets`), text as it comes
(`channel`).
"""

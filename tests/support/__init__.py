"""What tests need to know of Recado: the service through its API, receivers of webhooks, documents, fakes."""

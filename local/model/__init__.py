"""A language model on this machine, behind the protocols of Amazon Bedrock and of OpenAI."""

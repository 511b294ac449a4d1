"""What an operator runs with AWS credentials."""

"""What is deployed: a stack composes and grants, a construct owns one thing."""

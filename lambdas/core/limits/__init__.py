"""What is counted per owner apart from jobs: requests that are held open, and what is used in a day."""

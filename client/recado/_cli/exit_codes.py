"""The exit codes of `recado`."""

OK = 0
ERROR = 1
USAGE = 2
JOB_FAILED = 3
JOB_CANCELED = 4
TIMEOUT = 5
UNAUTHORIZED = 6
INTERRUPTED = 130

HELP = """exit codes:
    0  success
    1  the service refused the request, or the connection failed
    2  the command line is invalid
    3  the job failed
    4  the job was canceled
    5  the timeout passed; the job continues
    6  no URL or API key is set, or the key is invalid
  130  Ctrl-C; a job that was waited for continues
"""

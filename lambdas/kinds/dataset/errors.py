"""Why a dataset fails: one code for each reason. The messages say what to do.

InvalidDataset is of fine-tunes; these are RejectedDatasets.
"""

from __future__ import annotations

from core.errors import JobFailure


class RejectedDataset(JobFailure):
    """The file or the request cannot be worked with, and would not be in another attempt."""

    code = "invalid_dataset"


class EmptyFile(RejectedDataset):
    code = "empty_file"


class NoRows(RejectedDataset):
    """There is a header and nothing else, or no record could be read."""

    code = "no_rows"


class NotDelimitedText(RejectedDataset):
    code = "not_csv"


class UnknownEncoding(RejectedDataset):
    code = "unknown_encoding"


class UnbalancedQuotes(RejectedDataset):
    code = "unbalanced_quotes"


class TooManyRejects(RejectedDataset):
    code = "too_many_rejects"


class TooManyColumns(RejectedDataset):
    code = "too_many_columns"


class TooManyRows(RejectedDataset):
    code = "too_many_rows"


class TooFewRows(RejectedDataset):
    code = "too_few_rows"


class ColumnMissing(RejectedDataset):
    """A column that the request names is not in the file."""

    code = "column_missing"


class TargetMissing(ColumnMissing):
    code = "target_missing"


class AmbiguousColumn(RejectedDataset):
    """Several columns have the name that the request names."""

    code = "ambiguous_column"


class TargetSingleClass(RejectedDataset):
    code = "target_single_class"


class TargetUnsuitable(RejectedDataset):
    """The target does not fit the task."""

    code = "target_unsuitable"


class NoFeatures(RejectedDataset):
    code = "no_features"


class SchemaMismatch(RejectedDataset):
    """The rows to predict do not fit the model. The message names the column."""

    code = "schema_mismatch"


class DiskFull(RejectedDataset):
    code = "disk_full"

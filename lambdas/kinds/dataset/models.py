"""The input, the events and the result of a dataset job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from core.models import Request, ShortText, Text

Key = Annotated[Text, StringConstraints(min_length=1, max_length=1024)]
MAX_DROPPED = 500


class DatasetInput(Request):
    """A CSV file to clean, the column to predict, and perhaps another file with rows to predict."""

    s3_key: Key = Field(description="The `s3_key` that POST /uploads returned for the kind `dataset`.")
    target: ShortText = Field(description="The name of the column to predict.")
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    id_column: ShortText | None = Field(None, description="Names the rows in the predictions. It is no feature.")
    date_columns: dict[ShortText, Literal["ymd", "dmy", "mdy"]] | None = Field(
        None,
        max_length=100,
        description="How dates are written in columns where no value tells: day or month first.",
    )
    drop: list[ShortText] | None = Field(
        None, max_length=MAX_DROPPED, description="Columns that the model must not look at."
    )
    predict_s3_key: Key | None = Field(
        None,
        description="Another upload, with rows to predict. If absent, the rows of the cleaned file are predicted.",
    )
    format: Literal["csv"] = Field("csv", description="Of the files. Delimiter and encoding are found.")


class DatasetUploaded(BaseModel):
    """The job was submitted."""

    bytes: int


class ColumnSummary(BaseModel):
    """`unreadable`: values that are null because they are not of the type. `note`: why a column is text."""

    name: str
    type: str
    null_share: float
    unreadable: int
    note: str


class DatasetCleaned(BaseModel):
    """The file is a table. `columns`: the first 100 of `column_count`.

    Rows out, rejected records and duplicates are together the records of the file.
    """

    rows_in: int
    rows_out: int
    rejected: dict[str, int]
    duplicates: int
    column_count: int
    columns: list[ColumnSummary]
    encoding: str
    delimiter: str
    cleaned_key: str
    rejects_key: str
    seconds: float


class CurveStep(BaseModel):
    """`score`: AUC, minus log loss, or R², on rows that the model has not seen."""

    rows: int
    score: float
    seconds: float
    trees: int


class FeatureShare(BaseModel):
    feature: str
    share: float


class DatasetTrained(BaseModel):
    """A model has learned. Metrics are of rows held out; `baseline` predicts without looking at any column."""

    task: str
    metrics: dict[str, float | None]
    baseline: dict[str, float | None]
    top_features: list[FeatureShare]
    rows_used: int
    rows_held_out: int
    learning_curve: list[CurveStep]
    tree_hash: str = Field(description="SHA-256 of the trees: the same data give the same trees.")
    warnings: list[str]
    seconds: float


class DatasetPredicted(BaseModel):
    """Every row has a prediction. `unpredicted`: records of the file that were rejected."""

    rows: int
    unpredicted: int
    distribution: dict[str, Any]
    seconds: float


class DatasetFiles(BaseModel):
    """Names of the result files. The job's `files` has a link to each."""

    predictions: Literal["predictions.parquet"] = "predictions.parquet"
    predictions_csv: Literal["predictions.csv"] = "predictions.csv"
    cleaned: Literal["cleaned.parquet"] = "cleaned.parquet"
    rejects: Literal["rejects.jsonl"] = "rejects.jsonl"
    unreadable: Literal["unreadable.jsonl"] = "unreadable.jsonl"
    unpredicted: Literal["unpredicted.jsonl"] = "unpredicted.jsonl"
    model: Literal["model.txt"] = "model.txt"
    model_schema: Literal["schema.json"] = "schema.json"
    manifest: Literal["manifest.json"] = "manifest.json"
    report: Literal["report.html"] = "report.html"


class ExportedFile(BaseModel):
    """`sha256`: of the file's bytes, in hexadecimal."""

    name: str
    key: str
    bytes: int
    sha256: str


class Dataset(BaseModel):
    """The predictions, the model and the report. `report.html` is written last and is not in the manifest."""

    task: str
    metrics: dict[str, float | None]
    rows: int
    rows_predicted: int
    exported: list[ExportedFile]
    files: DatasetFiles

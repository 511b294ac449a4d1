"""Datasets: Clean ▸ Train ▸ Predict ▸ Export ▸ Report. Each is a function with the job's files on its disk."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_lambda as lambda_

from stacks.kinds.base import KindConstruct
from stacks.storage import RESULTS

REPORT_MEMORY_MB = 1024
OPENMP = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait by spinning would take the CPU from those that work."""


class DatasetConstruct(KindConstruct):
    """The functions of its stages. Memory, and so CPUs, and the disk are knobs."""

    def tasks(self) -> Mapping[str, lambda_.Function]:
        config = self.shared.config
        rows = {"DATASET_MAX_ROWS": str(config.dataset_max_rows)}
        training = {
            "DATASET_TRAIN_ROWS": str(config.dataset_train_rows),
            "DATASET_TRAIN_SECONDS": str(config.dataset_train_seconds),
        }
        upload = {"MAX_UPLOAD_BYTES": str(config.max_upload_bytes)}
        return {
            "CleanDataset": self._stage("clean_dataset", "tables", read=("uploads/",), environment=rows | upload),
            "TrainModel": self._stage("train_model", "training", environment=training | OPENMP),
            "PredictRows": self._stage("predict_rows", "training", read=("uploads/",), environment=rows | OPENMP),
            "ExportResults": self._stage("export_results", "tables"),
            "ReportResults": self._stage("report_results", "plots", memory_mb=REPORT_MEMORY_MB, disk_mb=512),
        }

    def _stage(
        self,
        folder: str,
        layer: str,
        *,
        read: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
    ) -> lambda_.Function:
        config, own = self.shared.config, ("work/", RESULTS)
        function = self.function(
            "".join(part.capitalize() for part in folder.split("_")),
            f"kinds/dataset/{folder}",
            memory_mb=memory_mb or config.dataset_memory_mb,
            disk_mb=disk_mb or config.dataset_disk_mb,
            layers=(layer,),
            environment=environment,
            read=(*own, *read),
            write=own,
            delete=own,
        )
        self.shared.storage.grant_objects(function, abort=own)
        return function

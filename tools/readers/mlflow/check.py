"""Lets onnxq log runs to MLflow, in a store of files or tables, and reads back what is there.

    check.py MODEL.onnx SAMPLES.npz OUT [FOLDER]

Prints one JSON object with the parameters, metrics, tags and artifacts of the runs: one of the command, one of log_run
inside a run that is active, and that of FOLDER, a training that is done, with the steps of each of its curves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    model, samples, out = sys.argv[1], sys.argv[2], Path(sys.argv[3]).absolute()
    os.environ["MLFLOW_TRACKING_URI"] = (out / "store").as_uri()
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow 3 wants a data base, which the small package has not
    import mlflow

    from onnxq.integrations.mlflow import log_run

    command = [
        "quantize",
        model,
        "-b",
        "onnxruntime",
        "-d",
        samples,
        "--effort",
        "0",
        "-o",
        str(out / "run"),
        "--mlflow",
    ]
    done = subprocess.run([sys.executable, "-m", "onnxq", *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    said = next(line for line in done.stderr.splitlines() if line.startswith("MLflow: run "))
    with mlflow.start_run(run_name="mine") as run:
        mlflow.log_param("mine", 1)
        again = log_run(out / "run")
        assert again == run.info.run_id
    numbers = [said.removeprefix("MLflow: run ").strip(), again, *map(log_run, sys.argv[4:])]
    client = mlflow.MlflowClient()
    found = []
    for number in numbers:
        data = client.get_run(number)
        found.append(
            {
                "name": data.info.run_name,
                "status": data.info.status,
                "params": data.data.params,
                "metrics": data.data.metrics,
                "tags": {key: value for key, value in data.data.tags.items() if key.startswith("onnxq.")},
                "steps": {
                    name: [point.step for point in client.get_metric_history(number, name)]
                    for name in data.data.metrics
                    if name.startswith("training.")
                },
                "artifacts": sorted(Path(entry.path).name for entry in client.list_artifacts(number, "onnxq")),
            }
        )
    print(json.dumps({"version": version("mlflow-skinny"), "runs": found}))


if __name__ == "__main__":
    main()

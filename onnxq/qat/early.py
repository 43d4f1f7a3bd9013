"""What would be refused after training, said before it."""

from __future__ import annotations

import itertools

from onnxq.emit import emit
from onnxq.errors import CheckFailed
from onnxq.graph import Graph
from onnxq.passes.remove_dropout import dropouts_in_training
from onnxq.qat.agreement import agreement, disagreements
from onnxq.qat.convert import convert
from onnxq.qat.deliver import as_trained
from onnxq.qat.net import QatNet
from onnxq.temporary import temporary_folder
from onnxq.verify import lint


def refuse_early(net: QatNet) -> None:
    """Write the files of before training into nowhere: what would be refused is said now, not after hours.

    That is what a target cannot take, and operators that onnxruntime computes in another way than torch.
    """
    found, backend = convert(net), net.prepared.backend
    with temporary_folder() as scratch:
        emitted = emit(*found, backend, scratch, "model")
        models = [path for path in emitted.files if path.suffix == ".onnx"]
        if not models:
            return
        findings = lint(Graph.load(models[0]), backend)
        if findings:
            raise CheckFailed(f"the target refuses this model before it is trained: {'; '.join(map(str, findings))}")
        samples = itertools.islice(iter(net.session.dataset or ()), 1)
        apart = disagreements(agreement(net, as_trained(net, found, models[0], scratch), samples, found.qparams))
    if apart:
        raise CheckFailed(f"before training, {'; '.join(apart)}. {_cause(net.prepared.graph)}")


def _cause(graph: Graph) -> str:
    dropping = dropouts_in_training(graph)
    if dropping:
        return (
            f"'{dropping[0]}' is a Dropout in training mode, which drops values at random whenever the file runs: "
            "export the model in eval() (with training=TrainingMode.PRESERVE batch norms are kept)"
        )
    return (
        "One of its operators is computed in another way by onnxruntime than by torch: register one that computes the "
        "same (docs/qat.md, 'Your own operators'), or change the model"
    )

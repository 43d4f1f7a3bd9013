"""`onnxq quantize`: the whole flow, a summary for people or the report for programs."""

from __future__ import annotations

from typing import Any

from onnxq.cli import options
from onnxq.cli.console import print_error
from onnxq.cli.progress import stage_bars


def quantize(
    model: options.ModelArgument,
    out: options.FolderOption,
    backend: options.BackendOption = None,
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    config: options.ConfigOption = None,
    mqbench: options.MqbenchOption = None,
    sophgo: options.SophgoOption = None,
    vitis: options.VitisOption = None,
    allow_code: options.AllowCodeOption = False,
    observer: options.ObserverOption = None,
    weight_observer: options.WeightObserverOption = None,
    skip: options.SkipOption = None,
    samples: options.SamplesOption = None,
    random: options.RandomOption = None,
    shape: options.ShapeOption = None,
    stats: options.StatisticsOption = None,
    workers: options.WorkersOption = None,
    memory_limit: options.MemoryLimitOption = None,
    provider: options.ProviderOption = None,
    effort: options.EffortOption = None,
    improve: options.ImproveOption = None,
    min_sqnr: options.MinimumOption = None,
    diagnose: options.DiagnoseOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Quantize MODEL for a target and write the checked files into a folder.

    Under torchrun the processes calibrate on a part of the samples each, and the first one writes the files.
    """
    from onnxq.cli.artifacts import check_statistics_file, check_writable
    from onnxq.cli.data import data_warnings, open_data
    from onnxq.cli.settings import load_plugins, read_foreign, read_settings
    from onnxq.cli.shapes import read_shapes
    from onnxq.cli.summary import fail_on_warnings, show_report
    from onnxq.distributed import in_step, torchrun_ranks
    from onnxq.graph import Graph
    from onnxq.quantize import contribute
    from onnxq.quantize import quantize as run
    from onnxq.session.model_io import fix_borders
    from onnxq.session.prepare import chosen_backend

    with (
        torchrun_ranks(print_error) as ranks,
        stage_bars(quiet=quiet or not (ranks is None or ranks.first)) as progress,
    ):
        with in_step(ranks):
            load_plugins(plugin)
            graph = Graph.load(model)
            settings = read_settings(
                read_foreign(
                    graph,
                    config=config,
                    backend=backend,
                    mqbench=mqbench,
                    sophgo=sophgo,
                    vitis=vitis,
                    allow_code=allow_code,
                ),
                allow_code=allow_code,
                backend=backend,
                skip=skip,
                shapes=read_shapes(shape, graph),
                data=data,
                observer=observer,
                weight_observer=weight_observer,
                samples=samples,
                min_sqnr=min_sqnr,
                preprocess=preprocess,
                workers=workers,
                memory_limit=memory_limit,
                provider=provider,
                effort=0 if random and data is None and effort is None else effort,
                improvements=tuple(improve) if improve else None,
                # Ranges of random numbers are nobody's fault.
                diagnose=False if random and data is None and diagnose is None else diagnose,
            )
            check_writable(out)
            check_statistics_file(stats, model, settings.data)
            strict = strict or settings.strict
            fix_borders(graph, settings)
            target = None if settings.translation is not None else backend
            samples_at = None if random and data is None else settings.data
            needed = samples_at is not None or random is not None or chosen_backend(target, settings).needs_data
            dataset = open_data(graph, samples_at, random, settings.samples, settings.preprocess) if needed else None
        given: dict[str, Any] = {
            "backend": target,
            "data": dataset,
            "config": settings,
            "passes": passes or (),
            "statistics": stats,
        }
        if ranks is not None and not ranks.first:
            contribute(graph, ranks, **given)
            return
        result = run(
            graph, **given, out=out, progress=progress, warnings=data_warnings(random), ranks=ranks, strict=strict
        )
    show_report(result.report, model, result.model, as_json=as_json, quiet=quiet)
    fail_on_warnings(result.report, out, strict=strict)

"""A typing error at any level, in any of the four languages: exit code 2 and the nearest name, and no files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.networks.exported import exported, samples

RESNET = "resnet_torchscript"
CONV = "/layer1/conv1/Conv"
Case = tuple[dict[str, Any], str]


def in_part(**values: Any) -> dict[str, Any]:
    return {"node": {CONV: {"weight": values}}}


NATIVE: dict[str, Case] = {
    "key": ({"obsever": "mse"}, "observer"),
    "key of a table": ({"weight": {"bit": 4}}, "bits"),
    "key of an input": ({"inputs": {"image": {"shap": [1, 3, 32, 32]}}}, "shape"),
    "part of an operator": ({"op": {"Conv": {"wieght": {}}}}, "weight"),
    "part of a node": ({"node": {CONV: {"outptu": {}}}}, "output"),
    "field of an operator": ({"op": {"Conv": {"weight": {"symetric": True}}}}, "symmetric"),
    "field of a node": (in_part(per_chanel=True), "per_channel"),
    "field of a tensor": ({"tensor": {"image": {"power_of_too": True}}}, "power_of_two"),
    "dtype": (in_part(dtype="itn8"), "int8"),
    "rounding": (in_part(rounding="half_evn"), "half_even"),
    "observer": ({"observer": "minmx"}, "minmax"),
    "observer of weights": ({"weight_observer": "mes"}, "mse"),
    "observer of a node": (in_part(observer={"name": "percentle"}), "percentile"),
    "parameter of an observer": ({"observer": "ema_minmax:decy=0.9"}, "decay"),
    "parameter in a table": (in_part(observer={"name": "percentile", "percentil": 9}), "percentile"),
    "fake-quantizer": ({"weight": {"fake_quantizer": "lsqq"}}, "lsq"),
    "argument of a fake-quantizer": ({"tensor": {"image": {"fake_quantizer": "pact:alhpa=3"}}}, "alpha"),
    "fake-quantizer of another tool": (in_part(fake_quantizer="LearnableFakeQuantise"), "LearnableFakeQuantize"),
    "backend": ({"backend": "tensorr"}, "tensorrt"),
    "option of a backend": ({"backend": "vitis:stratgy=fs"}, "strategy"),
    "value of an option": ({"backend": "vitis:strategy=fss"}, "fs"),
    "operator": ({"op": {"Cnov": {"skip": True}}}, "Conv"),
    "operator in a list": ({"skip": ["op:Cnov"]}, "Conv"),
    "operator of a chain": ({"fuse": [["Conv", "Sigmod"]]}, "Sigmoid"),
    "node": ({"node": {"/layer1/conv1/Cnov": {"skip": True}}}, CONV),
    "node to skip": ({"skip": ["/Sigmod"]}, "/Sigmoid"),
    "node to force": ({"force": ["/Sigmod"]}, "/Sigmoid"),
    "tensor": ({"tensor": {"imgae": {"bits": 8}}}, "image"),
    "weight": ({"tensor": {"layer1.conv1.wieght": {"bits": 8}}}, "layer1.conv1.weight"),
    "input": ({"inputs": {"imgae": {"shape": [1, 3, 32, 32]}}}, "image"),
    "further output": ({"extra_outputs": ["/Sigmod_output_0"]}, "/Sigmoid_output_0"),
    "pass": ({"passes": ["remove_ded"]}, "remove_dead"),
    "pass to leave out": ({"skip_passes": ["fold_batchnrom"]}, "fold_batchnorm"),
    "tie": ({"backend": "vitis", "skip_ties": ["AveragePol"]}, "AveragePool"),
    "refinement": ({"backend": "vitis", "skip_refinements": ["coarse_weight"]}, "coarse_weights"),
    "rule of a refinement": ({"backend": "vitis", "skip_refinements": ["dpu_positions.shift_cu"]}, "shift_cut"),
    "emitter": ({"backend": "vitis", "skip_emitters": ["fix_neuro"]}, "fix_neuron"),
    "simulation": ({"backend": "vitis", "skip_simulations": ["dpu_leaky"]}, "dpu_leaky_relu"),
    "preprocessing": ({"preprocess": "imagnet"}, "imagenet"),
}

SCHEME = {"bit": 8, "symmetry": True, "per_channel": True, "pot_scale": False}


def qconfig(**values: Any) -> dict[str, Any]:
    return {"extra_qconfig_dict": values}


def lists(**values: Any) -> dict[str, Any]:
    return {"extra_quantizer_dict": values}


def fuse(**values: Any) -> dict[str, Any]:
    return {"extra_fuse_dict": values}


MQBENCH: dict[str, Case] = {
    "dictionary": ({"extra_qconfig_dic": {}}, "extra_qconfig_dict"),
    "key": (qconfig(w_observr="MSEObserver"), "w_observer"),
    "observer of weights": (qconfig(w_observer="MSEObservr"), "MSEObserver"),
    "observer of activations": (qconfig(a_observer="EMAMinMaxObsever"), "EMAMinMaxObserver"),
    "fake-quantizer": (qconfig(a_fakequantize="FixdFakeQuantize"), "FixedFakeQuantize"),
    "argument of a fake-quantizer": (
        qconfig(a_fakequantize="PACTFakeQuantize", a_fakeq_params={"alhpa": 1}),
        "alpha",
    ),
    "key of a scheme": (qconfig(w_qscheme={**SCHEME, "per_chanel": True}), "per_channel"),
    "value of a scheme": (qconfig(w_qscheme={**SCHEME, "qscheme": "per_tensor_afine"}), "per_tensor_affine"),
    "list": (lists(exclude_node_nam=[]), "exclude_node_name"),
    "additional function": (lists(additional_function_type=["operator.ad"]), "operator.add"),
    "additional module": (lists(additional_module_type=["torch.nn.Upsmaple"]), "torch.nn.Upsample"),
    "additional node": (lists(additional_node_name=["layer1_1_cnv1"]), "layer1_1_conv1"),
    "excluded module": (lists(exclude_module_name=["layer2.1.rleu"]), "layer2.1.relu"),
    "excluded function": (lists(exclude_function_type=["torch.nn.functional.sigmoi"]), "torch.nn.functional.sigmoid"),
    "excluded node": (lists(exclude_node_name=["layer1_1_cnv1"]), "layer1_1_conv1"),
    "attribute": ({"preserve_attr": {"layer3": ["cnv1"]}}, "layer3.conv1"),
    "attribute of the model": ({"preserve_attr": {"": ["layr3"]}}, "layer3"),
    "key of fusing": (fuse(additional_fusion_patern={}), "additional_fusion_pattern"),
    "type of a pattern": (
        fuse(additional_fusion_pattern={"(torch.nn.Sigmoi, torch.nn.Conv2d)": None}),
        "torch.nn.Sigmoid",
    ),
    "type of a chain": (
        fuse(additional_fuser_method_mapping={"(torch.nn.Conv2, torch.nn.Sigmoid)": None}),
        "torch.nn.Conv2d",
    ),
    "type of a mapping": (
        fuse(additional_qat_module_mapping={"torch.nn.ConvTranspse2d": None}),
        "torch.nn.ConvTranspose2d",
    ),
    "input": ({"concrete_args": {"imgae": 1.0}}, "image"),
    "key of inputs": ({"concrete_arg": {}}, "concrete_args"),
}


def sophgo(*, quantizer: dict[str, Any] | None = None, quant: dict[str, Any] | None = None, **values: Any) -> Any:
    found: dict[str, Any] = {
        "quant_dict": {"chip": "BM1688", "quantmode": "weight_activation", "strategy": "CNN", **(quant or {})}
    }
    return {**found, "extra_qconfig_dict": values, "extra_quantizer_dict": quantizer or {}}


def module(name: str = "layer1.conv1", **entry: Any) -> Any:
    return sophgo(module_name={name: {"mode": "weight", **entry}})


SOPHGO: dict[str, Case] = {
    "dictionary": ({**sophgo(), "extra_quantizer_dic": {}}, "extra_quantizer_dict"),
    "key of the target": (sophgo(quant={"stratgy": "CNN"}), "strategy"),
    "chip": (sophgo(quant={"chip": "BM1864X"}), "BM1684X"),
    "quantmode": (sophgo(quant={"quantmode": "weight_activaton"}), "weight_activation"),
    "strategy": (sophgo(quant={"strategy": "Transfomer"}), "Transformer"),
    "key": (sophgo(a_observr="MinMaxObserver"), "a_observer"),
    "observer": (sophgo(a_observer="MinMaxObservr"), "MinMaxObserver"),
    "fake-quantizer": (sophgo(w_fakequantize="E4M3FakeQuantise"), "E4M3FakeQuantize"),
    "key of a scheme": (sophgo(w_qscheme={**SCHEME, "symetry": True}), "symmetry"),
    "type": (
        sophgo(object_type={"qnniqat.ConvBnRelU2d_sophgo": {"mode": "weight"}}),
        "qnniqat.ConvBnReLU2d_sophgo",
    ),
    "module": (module("layer1.cnv1", bit="8"), "layer1.conv1"),
    "key of an entry": (module(wobserer="MinMaxObserver"), "wobserver"),
    "mode of an entry": (module(mode="wieght"), "weight"),
    "observer of an entry": (module(wobserver="MinMaxObservr"), "MinMaxObserver"),
    "fake-quantizer of an entry": (module(wfakequantize="FixdFakeQuantize"), "FixedFakeQuantize"),
    "list": (sophgo(quantizer={"exclude_modul_name": []}), "exclude_module_name"),
    "quantizer": (
        sophgo(quantizer={"module_only_enable_observer": ["features.0.0.wieght_fake_quant"]}),
        "features.0.0.weight_fake_quant",
    ),
    "module of a quantizer": (
        sophgo(quantizer={"module_only_enable_observer": ["feature.0.0.weight_fake_quant"]}),
        "features.0.0",
    ),
    "excluded module": (sophgo(quantizer={"exclude_module_name": ["layer3.cnv3"]}), "layer3.conv3"),
    "excluded function": (
        sophgo(quantizer={"exclude_function_type": ["torch.nn.functional.sigmoi"]}),
        "torch.nn.functional.sigmoid",
    ),
    "layer of four bits": (sophgo(int4_op=["layer2.cnv2"]), "layer2.conv2"),
}


def pattern(quantizer: dict[str, Any] | None = None, **entry: Any) -> dict[str, Any]:
    target = {
        "target_type": "weight",
        "target_name": "kernel",
        "quantizer_config": {"type": "FSQuantizer", "params": {}, **(quantizer or {})},
    }
    listed = {"layer_type": "Conv2D", "quant_config": [target], **entry}
    return {"strategy": "fs", "quantize_registry_config": {"layer_quantize_config": [listed]}}


def target(**values: Any) -> dict[str, Any]:
    given = {"target_type": "weight", "target_name": "kernel", "quantizer_config": {"type": "FSQuantizer"}, **values}
    return pattern(quant_config=[given])


VITIS: dict[str, Case] = {
    "strategy": ({"strategy": "pof2"}, "pof2s"),
    "pipeline": ({"optimise_pipeline_config": {}}, "optimize_pipeline_config"),
    "switch of optimizing": ({"optimize_pipeline_config": {"fold_conv_bm": True}}, "fold_conv_bn"),
    "switch of quantizing": (
        {"quantize_pipeline_config": {"convert_leaky_relu_to_dpu_versio": True}},
        "convert_leaky_relu_to_dpu_version",
    ),
    "switch of refining": ({"refine_pipeline_config": {"adjust_dpu_shift_cuts": True}}, "adjust_dpu_shift_cut"),
    "registry": ({"quantize_registry_config": {"layer_quantise_config": []}}, "layer_quantize_config"),
    "key of the user": ({"user_quantize_config": {"weigth_bit": 4}}, "weight_bit"),
    "value of the user": ({"weight_method": "MinMSE"}, "Min_MSE"),
    "key of inputs": ({"input_quantize_config": {"input_quantiser": {}}}, "input_quantizer"),
    "input": (
        {"input_quantize_config": {"input_layers": ["imgae"], "input_quantizer": {"type": "Pof2SQuantizer"}}},
        "image",
    ),
    "ignored layer": ({"ignore_layers": ["layer1.cnv1"]}, "layer1.conv1"),
    "key of an entry": (pattern(layer_nam="x"), "layer_name"),
    "type": (pattern(layer_type="Conv2d"), "Conv2D"),
    "name": (pattern(layer_name="layer1.cnv1"), "layer1.conv1"),
    "parameter of layers": (pattern(layer_params={"kernelsize": 3}), "kernel_size"),
    "type of an input": (pattern(layer_inputs=[{"layer_type": "ReLu"}]), "ReLU"),
    "pattern": (pattern(layer_inputs=[{"pattern": "stm"}], pattern_name="stem"), "stem"),
    "key of a target": (target(target_nam="kernel"), "target_name"),
    "type of a target": (target(target_type="wieght"), "weight"),
    "name of a target": (target(target_name="kernal"), "kernel"),
    "quantizer": (pattern({"type": "FSQuantiser"}), "FSQuantizer"),
    "key of a quantizer": (pattern({"nmae": "own"}), "name"),
    "parameter": (pattern({"params": {"bitwidth": 8}}), "bit_width"),
    "method": (pattern({"params": {"method": "MinMSE"}}), "Min_MSE"),
    "rounding": (pattern({"params": {"round_mode": "HALF_TO_EVN"}}), "HALF_TO_EVEN"),
    "format": (pattern({"params": {"data_format": "UNIT"}}), "UINT"),
}

OPTIONS = {
    "-c": NATIVE,
    "--mqbench": MQBENCH,
    "--sophgo": SOPHGO,
    "--vitis": VITIS,
}
CASES = [(option, *case, level) for option, cases in OPTIONS.items() for level, case in cases.items()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "data.npz", **samples(RESNET, 2))  # type: ignore[arg-type]
    return tmp_path


def refused(run: Any, folder: Path, *arguments: str) -> str:
    """What is said about a command that has to fail, and to leave nothing behind."""
    before = sorted(folder.iterdir())
    result = run("quantize", exported(RESNET), *arguments, "-d", "data.npz", "-o", "out")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sorted(folder.iterdir()) == before
    said = str(result.stderr)
    assert said.startswith("error: ")
    assert said.count("\n") == 1, "one message in one line"
    assert "Traceback" not in said
    return said


def suggested(said: str) -> str:
    return "".join(part.partition("?")[0] for part in said.split("Did you mean")[1:])


@pytest.mark.parametrize(
    ("option", "config", "nearest"),
    [case[:3] for case in CASES],
    ids=[f"{option.strip('-')}: {level}" for option, _, _, level in CASES],
)
def test_a_typing_error_is_answered_with_the_nearest_name(
    option: str, config: dict[str, Any], nearest: str, run: Any, folder: Path
) -> None:
    Path("given.json").write_text(json.dumps(config, indent=1))
    backend = {"-c": ["-b", "tensorrt"], "--mqbench": ["-b", "Tensorrt"]}.get(option, [])
    said = refused(run, folder, *([] if "backend" in config else backend), option, "given.json")
    assert f"'{nearest}'" in suggested(said), said


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("-b", "Tensorr", "--mqbench", "given.json"), "Tensorrt"),
        (("-b", "SNPEE", "--mqbench", "given.json"), "SNPE"),
        (("-b", "vitis:stratgy=fs", "--mqbench", "given.json"), "strategy"),
        (("--vitis", "pof2"), "pof2s"),
        (("-b", "tensorr"), "tensorrt"),
        (("-b", "tensorrt", "--skip", "/Sigmod"), "/Sigmoid"),
        (("-b", "tensorrt", "--observer", "minmx"), "minmax"),
        (("-b", "tensorrt", "--weight-observer", "mes"), "mse"),
        (("-b", "tensorrt", "--pass", "remove_ded"), "remove_dead"),
    ],
)
def test_a_typing_error_in_an_option_is_answered_too(
    arguments: tuple[str, ...], nearest: str, run: Any, folder: Path
) -> None:
    Path("given.json").write_text("{}")
    assert f"'{nearest}'" in suggested(refused(run, folder, *arguments))


@pytest.mark.parametrize(
    ("option", "config", "listed"),
    [
        ("-c", {"residual": "bth"}, "'both' or 'skip'"),
        ("-c", {"weight_storage": "integr"}, "'integer' or 'float'"),
        (
            "--mqbench",
            qconfig(a_observer="EMAMinMaxObserver", a_observer_extra_args={"ema_rato": 0.5}),
            "decay, ema_ratio",
        ),
        ("--sophgo", module(bit="9"), "Known: 8 and 4"),
    ],
)
def test_a_wrong_word_where_there_are_few_is_answered_with_all_of_them(
    option: str, config: dict[str, Any], listed: str, run: Any, folder: Path
) -> None:
    Path("given.json").write_text(json.dumps(config))
    backend = [] if option == "--sophgo" else ["-b", "tensorrt"]
    assert listed in refused(run, folder, *backend, option, "given.json")


FILES: dict[str, tuple[str, str, str]] = {
    "YAML that is cut off": ("-c given.yaml", "weight: {bits: 4\n", "given.yaml:2: cannot be read"),
    "YAML with a tab": ("-c given.yaml", "weight:\n\tbits: 4\n", "given.yaml:2: cannot be read"),
    "YAML that is a list": ("-c given.yaml", "- 1\n", "given.yaml must hold keys and values"),
    "JSON with a comma too many": ("-c given.json", '{"weight": {"bits": 4,}}', "given.json cannot be read"),
    "TOML that is cut off": ("-c given.toml", "[weight\n", "given.toml cannot be read"),
    "another language": ("-c given.ini", "bits = 4", "a configuration is a .toml, .yaml, .yml or .json file"),
    "a key twice in YAML": (
        "-c given.yaml",
        "weight: {bits: 4}\nweight: {bits: 8}\n",
        "given.yaml:2: cannot be read: the key 'weight' stands twice",
    ),
    "a key twice in JSON": ("-c given.json", '{"weight": {"bits": 4, "bits": 8}}', "the key 'bits' stands twice"),
    "a key twice in TOML": ("-c given.toml", "samples = 1\nsamples = 2\n", "given.toml cannot be read"),
    "a dictionary twice, as the document prints it": (
        "--sophgo given.py",
        'prepare_custom_config_dict = {\n "quant_dict": {},\n "extra_qconfig_dict": 1,\n "extra_qconfig_dict": 2,\n}\n',
        "given.py:4: the key 'extra_qconfig_dict' stands twice",
    ),
    "a dictionary twice in JSON": (
        "--sophgo given.json",
        '{"quant_dict": {}, "extra_qconfig_dict": {}, "extra_qconfig_dict": {}}',
        "the key 'extra_qconfig_dict' stands twice",
    ),
    "Python that raises": (
        "--allow-code --mqbench given.py",
        "x = 1\nraise ValueError('no')\n",
        "given.py, line 2: ValueError: no",
    ),
    "Python that is cut off": ("--mqbench given.py", "extra_config = {\n", "given.py: SyntaxError"),
    "Python with a name that is not imported": (
        "--allow-code --sophgo given.py",
        "prepare_custom_config_dict = {operator.add: 1}\n",
        "given.py, line 1: NameError: name 'operator' is not defined",
    ),
    "Python without the dictionary": ("--mqbench given.py", "extra_confg = {}\n", "defines none of extra_config"),
    "Python with something else": ("--vitis given.py", "strategy = ['fs']\n", "defines none of quantize_strategy"),
    "a strategy that is cut off": ("--vitis given.json", '{"strategy": ', "given.json cannot be read"),
}


@pytest.mark.parametrize(("options", "text", "message"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_read_is_named_with_its_line(
    options: str, text: str, message: str, run: Any, folder: Path
) -> None:
    *allowed, option, name = options.split()
    Path(name).write_text(text)
    backend = ["-b", "tensorrt"] if option in ("-c", "--mqbench") else []
    assert message in refused(run, folder, *allowed, *backend, option, name)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_that_is_not_there_is_named(option: str, run: Any, folder: Path) -> None:
    backend = ["-b", "tensorrt"] if option in ("-c", "--mqbench") else []
    assert "no configuration file at missing.json" in refused(run, folder, *backend, option, "missing.json")


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [
        ("backends", "tensorr", "tensorrt"),
        ("observers", "minmx", "minmax"),
        ("observers", "MSEObservr", "MSEObserver"),
        ("fake-quantizers", "lsqq", "lsq"),
        ("fake-quantizers", "LearnableFakeQuantise", "LearnableFakeQuantize"),
        ("formats", "itn8", "int8"),
        ("passes", "remove_ded", "remove_dead"),
    ],
)
def test_a_typing_error_in_a_list_is_answered(kind: str, name: str, nearest: str, run: Any) -> None:
    result = run("list", kind, name)
    assert result.exit_code == 2
    assert f"'{nearest}'" in suggested(result.stderr)


@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [("observers", "MSEObserver", "mse"), ("fake-quantizers", "LearnableFakeQuantize", "lsq_plus")],
)
def test_lists_know_what_other_tools_call_things(kind: str, name: str, own: str, run: Any) -> None:
    assert run("list", kind, name).stdout == run("list", kind, own).stdout != ""

"""The keys that the documents of MQBench, Sophgo-mq and Vitis AI print."""

from __future__ import annotations

SCHEME_KEYS = ("bit", "symmetry", "per_channel", "pot_scale")
QCONFIG_KEYS = ("w_observer", "a_observer", "w_fakequantize", "a_fakequantize", "w_qscheme", "a_qscheme")
OBSERVERS = (
    *("MinMaxObserver", "EMAMinMaxObserver", "MinMaxFloorObserver", "EMAMinMaxFloorObserver", "EMAQuantileObserver"),
    *("ClipStdObserver", "LSQObserver", "MSEObserver", "EMAMSEObserver"),
)
FAKE_QUANTIZERS = (
    *("FixedFakeQuantize", "LearnableFakeQuantize", "NNIEFakeQuantize", "DoReFaFakeQuantize", "DSQFakeQuantize"),
    *("PACTFakeQuantize", "TqtFakeQuantize", "AdaRoundFakeQuantize"),
)
FLOW = ("prepare_by_platform", "enable_calibration", "enable_quantization", "convert_deploy")
MQBENCH = (
    *QCONFIG_KEYS,
    *SCHEME_KEYS,
    *("additional_function_type", "additional_module_type", "additional_node_name"),
    *("exclude_module_name", "exclude_function_type", "exclude_node_name"),
    *("preserve_attr", "additional_fuser_method_mapping", "additional_fusion_pattern", "additional_qat_module_mapping"),
    *("concrect_args", "concrete_args"),
    *OBSERVERS,
    *FAKE_QUANTIZERS,
    *FLOW,
)
SOPHGO = (
    *("chip", "BM1688", "BM1684X", "SG2260", "Academic"),
    *("quantmode", "weight_only", "weight_activation", "strategy", "CNN", "Transformer"),
    *QCONFIG_KEYS,
    *SCHEME_KEYS,
    *("object_type", "module_name", "mode", "weight", "activation"),
    *("wfakequantize", "afakequantize", "wobserver", "aobserver"),
    *("module_only_enable_observer", "exclude_module_name", "exclude_function_type"),
    "E4M3FakeQuantize",
)
PARAMETERS = (
    *("bit_width", "data_format", "method", "round_mode", "symmetry", "per_channel", "channel_axis", "unsigned"),
    *("narrow_range", "epsilon"),
)
VITIS_QUANTIZERS = {
    "Pof2SQuantizer": (*PARAMETERS, "min_quantize_pos", "max_quantize_pos"),
    "FSQuantizer": (*PARAMETERS, "use_framework_quantizer"),
    "MAFSQuantizer": (*PARAMETERS, "ema_decay"),
    "TQTQuantizer": PARAMETERS,
}
VITIS = (
    *("pof2s", "fs", "tqt"),
    *VITIS_QUANTIZERS,
    *PARAMETERS,
    *("min_quantize_pos", "max_quantize_pos", "use_framework_quantizer", "ema_decay"),
    *("type", "params", "quantizer_type", "quantizer_params", "name"),
    *("INT", "UINT", "BFP16", "FP16", "No_OF", "Min_MSE", "Min_KL", "Percentile"),
    *("HALF_TO_EVEN", "HALF_UP", "HALF_TO_ZERO"),
    *("optimize_pipeline_config", "quantize_pipeline_config", "refine_pipeline_config", "quantize_registry_config"),
    *("user_defined_quantize_config", "input_quantize_config", "layer_quantize_config"),
    *("pattern_name", "layer_type", "layer_name", "layer_params", "layer_inputs", "pattern", "quant_config"),
    *("target_name", "target_type", "shared_quantizer", "quantizer_config"),
)
PAGES = {"mqbench": MQBENCH, "sophgo": SOPHGO, "vitis": VITIS}
CASES = [(page, key) for page, keys in PAGES.items() for key in dict.fromkeys(keys)]

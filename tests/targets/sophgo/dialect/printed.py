"""The configuration that Sophgo's document prints, on a ResNet: its globals are float8, and so are its layers.

The document gives layers of a float8 model fake-quantizers for integers, which no table of tpu-mlir can say. Here they
have those of the model; integers.py has the layers as printed, in a model of integers.
"""

import torch

object_type = {
    "qnniqat.ConvBnReLU2d_sophgo": {
        "mode": "activation",
        "bit": "8",
        "afakequantize": "E4M3FakeQuantize",
        "aobserver": "MinMaxObserver",
    },
    "qnniqat.ConvReLU2d_sophgo": {
        "mode": "weight",
        "bit": "8",
        "wfakequantize": "E4M3FakeQuantize",
        "wobserver": "MinMaxObserver",
    },
}
module_name = {
    "layer1.conv1": {
        "mode": "activation",
        "bit": "8",
        "afakequantize": "E4M3FakeQuantize",
        "aobserver": "MinMaxObserver",
    },
    "layer2.conv2": {
        "mode": "weight",
        "bit": "8",
        "wfakequantize": "E4M3FakeQuantize",
        "wobserver": "MinMaxObserver",
    },
}
prepare_custom_config_dict = {
    "quant_dict": {"chip": "SG2260", "quantmode": "weight_activation", "strategy": "CNN"},
    "extra_qconfig_dict": {
        "w_observer": "MinMaxObserver",
        "a_observer": "EMAMinMaxObserver",
        "w_fakequantize": "E4M3FakeQuantize",
        "a_fakequantize": "E4M3FakeQuantize",
        "w_qscheme": {"bit": 8, "symmetry": True, "per_channel": False, "pot_scale": False},
        "a_qscheme": {"bit": 8, "symmetry": True, "per_channel": False, "pot_scale": False},
        "object_type": object_type,
        "module_name": module_name,
    },
    "extra_quantizer_dict": {
        "module_only_enable_observer": ["features.0.0.weight_fake_quant"],
        "exclude_module_name": ["layer3.conv3"],
        "exclude_function_type": [torch.nn.functional.sigmoid],
    },
}

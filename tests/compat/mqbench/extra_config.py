"""The configuration that MQBench's document prints, with names that a real model has."""

import operator

extra_config = {
    "extra_qconfig_dict": {
        "w_observer": "MSEObserver",
        "a_observer": "MSEObserver",
        "w_fakequantize": "FixedFakeQuantize",
        "a_fakequantize": "FixedFakeQuantize",
        "w_qscheme": {
            "bit": 8,
            "symmetry": False,
            "per_channel": True,
            "pot_scale": False,
        },
        "a_qscheme": {
            "bit": 8,
            "symmetry": False,
            "per_channel": True,
            "pot_scale": False,
        },
    },
    "extra_quantizer_dict": {
        "additional_function_type": [operator.add],
        "additional_module_type": ("torch.nn.Upsample"),
        "additional_node_name": ["layer1_1_conv1"],
        "exclude_module_name": ["layer2.1.relu"],
        "exclude_function_type": [operator.mul],
        "exclude_node_name": ["layer1_1_conv1"],
    },
    "preserve_attr": {
        "": ["func1"],
        "backbone": ["func2"],
    },
    "extra_fuse_dict": {
        "additional_fuser_method_mapping": {
            ("torch.nn.Linear", "torch.nn.BatchNorm1d"): "fuse_linear_bn",
        },
        "additional_fusion_pattern": {
            ("torch.nn.BatchNorm1d", "torch.nn.Linear"): "ConvBNReLUFusion",
        },
        "additional_qat_module_mapping": {
            "torch.nn.ConvTranspose2d": "qnn.qat.ConvTranspose2d",
        },
    },
    "concrect_args": {},
}

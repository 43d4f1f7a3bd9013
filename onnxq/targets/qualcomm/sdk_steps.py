"""How the files go into Qualcomm's tools."""

from __future__ import annotations

from onnxq.types.vendor_step import VendorStep

RUN_ON_HTP = VendorStep(
    "onnxruntime-qnn runs the Q/DQ model on the HTP",
    """\
import onnxruntime as ort, onnxruntime_qnn
ort.register_execution_provider_library("QNNExecutionProvider", onnxruntime_qnn.get_library_path())
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
devices = [device for device in ort.get_ep_devices() if device.ep_name == "QNNExecutionProvider"]
options.add_provider_for_devices(devices[:1], {"backend_path": onnxruntime_qnn.get_qnn_htp_path()})
session = ort.InferenceSession("{model}", options)""",
)

QAIRT = (
    VendorStep(
        "the converter of QAIRT (2.2x and newer) takes the float model with its encodings",
        "qairt-converter --input_network {deploy} --quantization_overrides {encodings_1.0.0} --output_path {name}.dlc",
    ),
)

SNPE = (
    VendorStep(
        "SNPE makes a .dlc of the float model and its encodings",
        "snpe-onnx-to-dlc --input_network {deploy} --output_path {name}.dlc --quantization_overrides {encodings_0.6.1}",
    ),
    VendorStep(
        "SNPE quantizes it, with the encodings in the place of its own ranges; data.txt lists a few raw inputs",
        "snpe-dlc-quantize --input_dlc {name}.dlc --input_list data.txt --override_params --bias_bitwidth 32 "
        "--output_dlc {name}_quantized.dlc",
    ),
)

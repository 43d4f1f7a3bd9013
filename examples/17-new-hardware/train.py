"""MQBench's sequence for a chip that MQBench has never heard of: prepare, calibrate, train, deploy."""

import torch

from onnxq.compat.mqbench import convert_deploy, enable_calibration, enable_quantization, prepare_by_platform
from onnxq.demo import load_data

digits = load_data()
images, labels = torch.from_numpy(digits.train_images), torch.from_numpy(digits.train_labels)
test, answers = torch.from_numpy(digits.test_images), torch.from_numpy(digits.test_labels)


def loss_and_accuracy(model):
    with torch.no_grad():
        found = model(test)
    loss = torch.nn.functional.cross_entropy(found, answers)
    return f"loss {loss:.3f}, accuracy {(found.argmax(1) == answers).float().mean():.1%}"


torch.manual_seed(0)
extra = {"extra_qconfig_dict": {"w_fakequantize": "register_lsq", "a_fakequantize": "register_lsq"}}
model = prepare_by_platform("digits.onnx", "quill/", extra)
enable_calibration(model)
for batch in images[:256].split(32):
    model(batch)
enable_quantization(model)
print("calibrated:", loss_and_accuracy(model.torch().eval()))

optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
model.train()
for _ in range(100):
    rows = torch.randint(0, len(images), (32,))
    loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained:   ", loss_and_accuracy(model.torch().eval()))

result = convert_deploy(model, "quill/", output_path="out/trained")
for output in result.report["file_against_net"]:
    print(f"file and net: {output['within']:.2%} of '{output['output']}' within a step, {output['sqnr_db']} dB")

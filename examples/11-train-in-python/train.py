"""A training loop of one's own: an ONNX file becomes a torch module, is trained, and becomes files for a target."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import onnxq.qat

EPOCHS, BATCH = 3, 32

train, test = np.load("train.npz"), np.load("test.npz")
images, labels = torch.from_numpy(train["image"]), torch.from_numpy(train["label"])

# Placed and calibrated as `onnxq quantize` does it; mixed.toml names the target and the bits of each layer.
net = onnxq.qat.prepare("digits.onnx", data="calib.npz", config="mixed.toml")
for name, quantizer in net.fake_quantizers.items():
    if quantizer.role == "weight":
        print(f"{name:22} {quantizer.spec.bits} bits, trained by {quantizer.settings.name}")


def accuracy() -> float:
    net.eval()
    with torch.no_grad():
        found = net(torch.from_numpy(test["image"])).argmax(1).numpy()
    net.train()
    return float((found == test["label"]).mean())


# Parameters have the names of the model's initializers; what fake-quantizers learn is below `fake_quantizers.`.
scales = [p for name, p in net.named_parameters() if name.startswith("fake_quantizers.")]
others = [p for name, p in net.named_parameters() if not name.startswith("fake_quantizers.")]
optimizer = torch.optim.AdamW([{"params": others, "lr": 1e-3}, {"params": scales, "lr": 1e-4, "weight_decay": 0.0}])
steps = EPOCHS * (len(images) // BATCH)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

print(f"before training  {accuracy():.2%}")
torch.manual_seed(0)
for epoch in range(EPOCHS):
    for rows in torch.randperm(len(images)).split(BATCH)[: steps // EPOCHS]:
        loss = cross_entropy(net(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch + 1}          {accuracy():.2%}, loss {loss.item():.4f}")

# The files, with every check of `onnxq quantize`, and that they compute what the trained module computes.
result = onnxq.qat.deliver(net, "out/mixed")
print(f"written to {result.model}")

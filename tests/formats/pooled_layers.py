"""A network of layers that tables are apt to leave out."""

from __future__ import annotations

from tests.zoo_graphs.net import Net


def pooled_layers() -> Net:
    """Pooling of the input, a batch norm behind a Concat, bilinear enlarging and a Pad are among the layers."""
    net = Net("layers")
    x = net.node("MaxPool", net.input("x", [1, 3, 8, 8]), kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Concat", net.conv(x, 3, 4), net.conv(x, 3, 4), axis=1)
    x = net.relu(net.batch_norm(x, 8))
    x = net.node("Resize", x, "", net.floats([1.0, 1.0, 2.0, 2.0]), mode="linear")
    x = net.node("Pad", x, net.ints(0, 0, 1, 1, 0, 0, 1, 1))
    net.output(net.conv(x, 8, 2))
    return net

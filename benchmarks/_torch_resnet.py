"""ResNet-20 in plain torch, as one would write it, and the copying of our weights to it. Needs torch."""

from typing import Any

import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions; where the shape changes, the shortcut is a 1x1 convolution."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            conv = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet20(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        widths = [(16, 16, 1), *[(16, 16, 1)] * 2, (16, 32, 2), *[(32, 32, 1)] * 2]
        widths += [(32, 64, 2), *[(64, 64, 1)] * 2]
        self.blocks = nn.Sequential(*(Block(*w) for w in widths))
        self.classifier = nn.Linear(64, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(images)))
        return self.classifier(self.blocks(x).mean((2, 3)))


def copy_weights(network: ResNet20, params: Any) -> None:
    """Writes the parameters of `models.create("resnet20")` into the torch network."""

    def conv(layer: Any, p: Any) -> None:
        layer.weight.copy_(torch.from_numpy(np.array(p["kernel"])).permute(3, 2, 0, 1))

    def norm(layer: Any, p: Any) -> None:
        layer.weight.copy_(torch.from_numpy(np.array(p["scale"])))
        layer.bias.copy_(torch.from_numpy(np.array(p["bias"])))

    with torch.no_grad():
        conv(network.conv, params["stem_conv"])
        norm(network.norm, params["stem_norm"])
        for i, block in enumerate(network.blocks):
            p = params[f"blocks_{i}"]
            layers: list[Any] = [(block.conv1, block.norm1), (block.conv2, block.norm2)]
            if isinstance(block.shortcut, nn.Sequential):
                layers.append(block.shortcut)
            for j, (convolution, normalization) in enumerate(layers):
                conv(convolution, p[f"Conv_{j}"])
                norm(normalization, p[f"BatchNorm_{j}"])
        kernel, bias = params["classifier"]["kernel"], params["classifier"]["bias"]
        network.classifier.weight.copy_(torch.from_numpy(np.array(kernel)).T)
        network.classifier.bias.copy_(torch.from_numpy(np.array(bias)))

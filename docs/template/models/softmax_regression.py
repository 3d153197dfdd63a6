"""Softmax regression: the pixels are the features."""

from torch import nn

from benchmark.models.base import Net, Network, Shape, network


@network("softmax_regression")
class SoftmaxRegression(Network):
    """A linear classifier of the pixels, behind BatchNorm.

    ``scale``: whether BatchNorm has a scale and an offset for each pixel.
    """

    scale: bool

    def net(self, num_classes: int, shape: Shape) -> Net:
        channels, height, width = shape
        pixels = channels * height * width
        body = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(pixels, affine=self.scale))
        return Net(body, nn.Linear(pixels, num_classes), pixels)

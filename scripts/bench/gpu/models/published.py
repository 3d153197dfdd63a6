"""Networks of two published workloads, for images of 3 x 32 x 32. conf/model names their sources."""

from torch import nn

from benchmark.models.base import Net, Network, Shape, network


@network("pfl_research")
class PflResearch(Network):
    """16.8 million multiplications an image."""

    def net(self, num_classes: int, shape: Shape) -> Net:
        convolutions = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
        hidden = [nn.Dropout(0.25), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5)]
        return Net(nn.Sequential(*convolutions, *hidden), nn.Linear(128, num_classes), 128)


@network("blazefl")
class BlazeFL(Network):
    """0.65 million multiplications an image."""

    def net(self, num_classes: int, shape: Shape) -> Net:
        pool = [nn.ReLU(), nn.MaxPool2d(2)]
        hidden = [nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
        body = nn.Sequential(nn.Conv2d(3, 6, 5), *pool, nn.Conv2d(6, 16, 5), *pool, *hidden)
        return Net(body, nn.Linear(84, num_classes), 84)

"""COVID-FL (FedLD): chest X-rays of twelve sites, put together by Yan et al. (2023).

A source is a site; RSNA's images are cut into five, as the authors ship them. `partition=natural` makes each site a
client. Not published, so not checked: name and size of the archive, and how many images each site has. Most sites lack
a class: `python -m benchmark data partition dataset=covid_fl partition=natural` shows which.

Prepared images are what the authors' test transform makes (shorter side to 384, then the centre); their training
transform crops from the whole image, so the borders of the longer side are lost to it here.
"""

from pathlib import Path

from pydantic import Field

from datasets.core.base import RawOptions
from datasets.core.folders import Tree
from datasets.core.images import ListedDataset, ToSquare
from datasets.core.registry import dataset
from datasets.ssl_fl import TEST_LIST, find_lists

CLASSES = ("normal", "pneumonia", "COVID-19")
LISTS = "12_clients/split_real"
SITES = (
    *("bimcv", "cohen", "eurorad", "gz", "ml-workgroup", "ricord_c"),
    *("rsna-0", "rsna-1", "rsna-2", "rsna-3", "rsna-4", "sirm"),
)
TREE = Tree(
    title="COVID-FL",
    folders=("COVID-FL", "covid_fl"),
    layout=f"COVID-FL/labels.csv, COVID-FL/train, COVID-FL/test, COVID-FL/{TEST_LIST}, COVID-FL/{LISTS}",
    page="https://github.com/Zeng-Shuang/FedLD (README, Google Drive id 1cuvoYvt-EVs5qtA5Xgos0yUJmfPhRbwg)",
    archive="the folder COVID-FL (name and size of the archive are not published)",
    licence="not stated with the prepared copy",
)


class CovidOptions(RawOptions):
    """Options of COVID-FL; `size` is the side of the prepared images in pixels (the authors': 384)."""

    size: int = Field(default=384, ge=8)


@dataset("covid_fl", options=CovidOptions, tree=TREE)
def covid_fl(options: CovidOptions, root: Path) -> ListedDataset:
    """COVID-FL, chest X-rays of twelve sites (FedLD): 3 classes, 384 x 384; to be fetched by hand."""
    sites = [f"{LISTS}/{site}.csv" for site in SITES]
    lists = find_lists(TREE, root, CLASSES, sites)
    return ListedDataset(
        train=lists.files("train", {name: lists.names(name) for name in sites}, sources=True),
        test=lists.files("test", {TEST_LIST: lists.names(TEST_LIST)}),
        decode=ToSquare(options.size, "cover"),
        classes=CLASSES,
        sources=SITES,
        files=lists.place.files,
    )

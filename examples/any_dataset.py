"""The loader and the cache for a dataset that has no text: a folder of pictures, one subfolder per class.

python examples/any_dataset.py DIR --epochs 3                 # DIR/cat/*.jpg, DIR/dog/*.jpg, ...
"""

import argparse
from pathlib import Path

import timm
import torch
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from ocr import Loader, cached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    # What is the same in every epoch is made once per machine, and again if a picture changes; the rest follows below.
    pictures = ImageFolder(arguments.data, v2.Compose([v2.Resize((128, 128)), v2.PILToTensor()]))
    samples = pictures.samples
    items = cached(
        pictures, lambda index: (Path(samples[index][0]), samples[index][1]), listed=("samples", "imgs", "targets")
    )
    flip = v2.RandomHorizontalFlip()

    def collate(batch: list[tuple[torch.Tensor, int]]) -> dict[str, torch.Tensor]:
        images = torch.stack([flip(image) for image, _ in batch])
        return {"images": images.float() / 255, "labels": torch.tensor([label for _, label in batch])}

    loader = Loader(items, batch_size=16, shuffle=True, collate_fn=collate)
    model = timm.create_model("mobilenetv3_small_050", num_classes=len(pictures.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(arguments.epochs):
        losses = []
        for batch in loader:  # loader.state_dict() resumes exactly here, with any number of workers
            loss = torch.nn.functional.cross_entropy(model(batch["images"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}; {items}")


if __name__ == "__main__":
    main()

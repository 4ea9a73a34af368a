"""GlyphFeed's loader and cache in somebody else's training loop: plain torch, another model, another loss.

python examples/own_loop.py DIR/images/train DIR/jsons/train.json --epochs 3
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ocr import DBTransforms, Loader, OCRDataset
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import RandomFlip, RandomRotate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("annotation")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=640, help="longest side of a page, in pixels")
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    stages = [Letterbox(arguments.size), RandomFlip(), RandomRotate(10), Normalize()]
    dataset = OCRDataset(arguments.images, arguments.annotation, DBTransforms(stages, normalize="device"), cache="auto")
    # Batches arrive on the device, normalised there. Each pass over the loader is the next epoch.
    loader = Loader(dataset, batch_size=4, num_workers=2, shuffle=True, device=device)

    layers = [nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 5, padding=2)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(arguments.epochs):
        losses = []
        for batch in loader:
            logits = model(batch["images"])
            # Ignored words count neither as text nor as background.
            loss = binary_cross_entropy_with_logits(logits, batch["prob_maps"], weight=batch["prob_masks"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        hits = dataset.ledger.totals()["cache_hits"]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}, {hits} of {len(dataset)} pages cached")


if __name__ == "__main__":
    main()

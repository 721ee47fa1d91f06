"""An image classifier in the style of scripts for CUDA; without a device it trains on the CPU."""

import argparse
import json

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(72, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return F.log_softmax(self.linear(torch.flatten(x, 1)), dim=1)


def train(model, device, loader, optimizer):
    model.train()
    losses = []
    for batch in loader:
        data, target = (tensor.to(device, non_blocking=True) for tensor in batch)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def test(model, use_cuda, loader):
    model.eval()
    correct = torch.cuda.LongTensor([0]) if use_cuda else torch.LongTensor([0])
    for data, target in loader:
        if use_cuda:
            data, target = data.cuda(), target.cuda(non_blocking=True)  # noqa: PLW2901 - as scripts do
        correct += model(data).argmax(dim=1).eq(target).sum()
    return correct.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--save")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(1)
    if use_cuda:
        torch.cuda.manual_seed_all(1)
        torch.backends.cudnn.benchmark = True
    device = torch.device("cuda:0" if use_cuda else "cpu")
    options = {"num_workers": 0, "pin_memory": True} if use_cuda else {}
    images, labels = load_digits(return_X_y=True)
    dataset = TensorDataset(
        torch.tensor(images[:512], dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels[:512])
    )
    loader = DataLoader(dataset, batch_size=128, **options)
    model = Net()
    if use_cuda:
        model.cuda()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = [loss for _ in range(3) for loss in train(model, device, loader, optimizer)]
    torch.save(model.state_dict(), args.save)
    model.load_state_dict(torch.load(args.save, map_location="cuda" if use_cuda else "cpu", weights_only=True))
    kinds = sorted({parameter.device.type for parameter in model.parameters()})
    print(json.dumps({"losses": losses, "accuracy": test(model, use_cuda, loader), "devices": kinds}))


if __name__ == "__main__":
    main()

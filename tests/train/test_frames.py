"""From the loop to the network it is not far."""

import pathlib
import traceback
from typing import Any

import flax.linen as nn
import pytest
from experiment import small

import calib_jax
from calib_jax import methods, train

PACKAGE = pathlib.Path(calib_jax.__file__).parent


@pytest.mark.parametrize("name", ["cross_entropy", "adafocal"])
def test_at_most_seven_frames_from_the_loop_to_the_module(
    tmp_path: pathlib.Path, name: str
) -> None:
    stacks: list[list[str]] = []

    class Spy(nn.Module):
        @nn.compact
        def __call__(self, images: Any, train: bool = False) -> Any:
            stack = traceback.extract_stack()
            ours = [
                frame for frame in stack if pathlib.Path(frame.filename).is_relative_to(PACKAGE)
            ]
            if train:
                stacks.append([frame.name for frame in ours])
            return nn.Dense(3)(images.reshape(images.shape[0], -1))

    made = train.Trainer(
        train.Network(Spy()),
        methods.recipe(name).phases[-1],
        lambda *_: train.make_optimizer("sgd", lambda _: 0.1),
        small.images(8, 0),
        small.images(6, 1),
        train.Setup(batch_size=4, epochs=1),
    )
    stacks.clear()  # a module without cuts is traced once before
    small.fit(made, tmp_path)
    (frames,) = {tuple(stack) for stack in stacks}
    assert frames[:4] == ("fit", "steps", "one_step", "train_step")
    assert len(frames) <= 7, frames

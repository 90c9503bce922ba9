"""Every part of a latent model can be named by its class path in a config, with plain data as its arguments."""

import pytest
import torch
import yaml
from lightning.pytorch.cli import LightningArgumentParser
from torch import nn

import modules.networks.latent as latent

WRITTEN = {
    "MLPEncoder": "{observed: 4, dimensions: 2, hidden: [8], counts: true}",
    "GRUEncoder": "{observed: 4, dimensions: 2, hidden: 8, bidirectional: true, window: 5}",
    "IdentityDecoder": "{dimensions: 2, noise: 0.1}",
    "LinearDecoder": "{observed: 3, weight: [[1, 0], [0, 1], [1, 1]], bias: [0, 0, 1]}",
    "MLPDecoder": "{observed: 4, hidden: [8, 8], counts: true}",
    "AxisActions": "{axes: [1], dimensions: 2}",
    "LinearActions": "{actions: 2}",
    "MLPActions": "{actions: 2, hidden: [8]}",
    "IdentityActions": "{}",
    "RBF": "{centres: 5}",
    "LinearDynamics": "{dimensions: 3}",
    "MLPDynamics": "{hidden: [8]}",
    "Ensemble": "{count: 3}",
    "StateDependent": "{actions: 2, dynamics: {class_path: modules.networks.latent.MLPDynamics}}",
}


def built(name: str) -> nn.Module:
    parser = LightningArgumentParser()
    parser.add_subclass_arguments(nn.Module, "part")
    part = {"class_path": f"modules.networks.latent.{name}", "init_args": yaml.safe_load(WRITTEN[name])}
    return parser.instantiate_classes(parser.parse_object({"part": part})).part


def test_every_part_is_written_here() -> None:
    assert set(WRITTEN) == set(latent.EXPORTS)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_part_is_built_from_a_config_and_its_weights_can_be_kept(name: str) -> None:
    torch.manual_seed(0)
    part, other = built(name), built(name)

    assert type(part) is getattr(latent, name)
    other.load_state_dict(part.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(part.parameters(), other.parameters(), strict=True))

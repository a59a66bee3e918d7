"""Flax networks with methods `embed`, `features` and `head`, and the loading of pretrained weights."""

from calib_jax.models._create import NAMES as NAMES
from calib_jax.models._create import create as create
from calib_jax.models._densenet import DenseNet as DenseNet
from calib_jax.models._encoder import Encoder as Encoder
from calib_jax.models._encoder import EncoderConfig as EncoderConfig
from calib_jax.models._hub import find_pretrained as find_pretrained
from calib_jax.models._mlp import MLP as MLP
from calib_jax.models._pretrained import image_statistics as image_statistics
from calib_jax.models._pretrained import load_pretrained as load_pretrained
from calib_jax.models._pretrained import save_pretrained as save_pretrained
from calib_jax.models._resnet import ResNet as ResNet
from calib_jax.models._text_classifier import HEADS as HEADS
from calib_jax.models._text_classifier import TextClassifier as TextClassifier
from calib_jax.models._text_cnn import TextCNN as TextCNN
from calib_jax.models._vit import VisionEncoder as VisionEncoder
from calib_jax.models._vit import ViT as ViT
from calib_jax.models._vit import ViTConfig as ViTConfig
from calib_jax.models._wide_resnet import WideResNet as WideResNet

"""Data sets: readers of the publishers' files and of your own, tokenization, batch order, streams."""

from calib_jax.data._batches import BatchPlan as BatchPlan
from calib_jax.data._batches import epoch_counts as epoch_counts
from calib_jax.data._batches import in_order as in_order
from calib_jax.data._batches import make_buckets as make_buckets
from calib_jax.data._batches import shuffled as shuffled
from calib_jax.data._batches import split_batch as split_batch
from calib_jax.data._batches import steps_per_epoch as steps_per_epoch
from calib_jax.data._columns import Columns as Columns
from calib_jax.data._dataset import Dataset as Dataset
from calib_jax.data._dataset import random_subset as random_subset
from calib_jax.data._examples import Value as Value
from calib_jax.data._load import FORMATS as FORMATS
from calib_jax.data._load import NAMES as NAMES
from calib_jax.data._load import corrupted_set as corrupted_set
from calib_jax.data._load import load as load
from calib_jax.data._load import register as register
from calib_jax.data._stream import stream as stream
from calib_jax.data._text import Tokenizer as Tokenizer
from calib_jax.data._text import copy_tokenizer as copy_tokenizer
from calib_jax.data._text import tokenize as tokenize
from calib_jax.data._unlabeled import Unlabeled as Unlabeled
from calib_jax.data._unlabeled import read_unlabeled as read_unlabeled
from calib_jax.data._words import SEPARATORS as SEPARATORS
from calib_jax.data._words import Vocabulary as Vocabulary
from calib_jax.data._words import read_glove as read_glove
from calib_jax.data._words import word_ids as word_ids

"""Training: the pure step, what compiles it, the loop around it, and its checkpoints."""

from calib_jax.train._abreast import Abreast as Abreast
from calib_jax.train._checkpoints import SELECTION as SELECTION
from calib_jax.train._checkpoints import Checkpoints as Checkpoints
from calib_jax.train._checkpoints import cost as cost
from calib_jax.train._feed import Feed as Feed
from calib_jax.train._log import Log as Log
from calib_jax.train._loop import DivergedError as DivergedError
from calib_jax.train._loop import Stopped as Stopped
from calib_jax.train._loop import fit as fit
from calib_jax.train._network import Network as Network
from calib_jax.train._optimizer import OPTIMIZERS as OPTIMIZERS
from calib_jax.train._optimizer import SCHEDULES as SCHEDULES
from calib_jax.train._optimizer import make_optimizer as make_optimizer
from calib_jax.train._optimizer import make_schedule as make_schedule
from calib_jax.train._processes import LOST_SECONDS as LOST_SECONDS
from calib_jax.train._processes import MODES as MODES
from calib_jax.train._processes import is_first as is_first
from calib_jax.train._processes import join as join
from calib_jax.train._processes import together as together
from calib_jax.train._processes import wait_for_all as wait_for_all
from calib_jax.train._processes import whole as whole
from calib_jax.train._step import TrainState as TrainState
from calib_jax.train._step import make_train_step as make_train_step
from calib_jax.train._trainer import Setup as Setup
from calib_jax.train._trainer import Trainer as Trainer

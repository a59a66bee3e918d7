"""Training: the pure step, its programs, the loop around it, and its checkpoints."""

from calib_jax._signals import Stopped as Stopped
from calib_jax.train._checkpoints import SELECTION as SELECTION
from calib_jax.train._checkpoints import Checkpoints as Checkpoints
from calib_jax.train._checkpoints import cost as cost
from calib_jax.train._distributed import LOST_SECONDS as LOST_SECONDS
from calib_jax.train._distributed import MODES as MODES
from calib_jax.train._distributed import any_process as any_process
from calib_jax.train._distributed import barrier as barrier
from calib_jax.train._distributed import init_distributed as init_distributed
from calib_jax.train._distributed import is_primary as is_primary
from calib_jax.train._distributed import to_host as to_host
from calib_jax.train._loader import Loader as Loader
from calib_jax.train._logging import Log as Log
from calib_jax.train._loop import fit as fit
from calib_jax.train._network import Network as Network
from calib_jax.train._optimizer import OPTIMIZERS as OPTIMIZERS
from calib_jax.train._optimizer import SCHEDULES as SCHEDULES
from calib_jax.train._optimizer import make_optimizer as make_optimizer
from calib_jax.train._optimizer import make_schedule as make_schedule
from calib_jax.train._recorder import DivergedError as DivergedError
from calib_jax.train._seeds import check_seeds as check_seeds
from calib_jax.train._seeds import fit_seeds as fit_seeds
from calib_jax.train._state import TrainState as TrainState
from calib_jax.train._step import make_train_step as make_train_step
from calib_jax.train._trainer import Setup as Setup
from calib_jax.train._trainer import Trainer as Trainer

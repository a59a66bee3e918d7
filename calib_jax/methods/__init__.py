"""Methods: losses, targets and training dynamics put together into ways to train."""

from calib_jax.methods._autolabel import AutoLabelState as AutoLabelState
from calib_jax.methods._autolabel import autolabel as autolabel
from calib_jax.methods._base import Apply as Apply
from calib_jax.methods._base import Aux as Aux
from calib_jax.methods._base import Batch as Batch
from calib_jax.methods._base import Evaluator as Evaluator
from calib_jax.methods._base import Info as Info
from calib_jax.methods._base import Method as Method
from calib_jax.methods._create import NAMES as NAMES
from calib_jax.methods._create import check_name as check_name
from calib_jax.methods._create import create as create
from calib_jax.methods._create import options as options
from calib_jax.methods._fine_tuning import fine_tuning as fine_tuning
from calib_jax.methods._informed_mixup import informed_mixup as informed_mixup
from calib_jax.methods._lcl import lcl as lcl
from calib_jax.methods._mixup import mixup as mixup
from calib_jax.methods._objectives import OBJECTIVES as OBJECTIVES
from calib_jax.methods._objectives import Objective as Objective
from calib_jax.methods._recorded import recorded as recorded
from calib_jax.methods._recorded import records as records
from calib_jax.methods._self_distillation import self_distillation as self_distillation
from calib_jax.methods._supervised import supervised as supervised
from calib_jax.methods._watched import watched as watched
